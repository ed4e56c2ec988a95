"""The codec: what goes in comes out, to the bit; whatever is not plain data, and whatever is no
frame, is a ProtocolError."""

from __future__ import annotations

import itertools
import json
import math
import struct
import tracemalloc
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from draws import draws
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from twophase.protocol import Callback, ObjectRef, ProtocolError, decode, encode, roundtrip
from twophase.protocol.arrays import DTYPES
from twophase.protocol.codec import decode_each, encode_each
from twophase.protocol.parts import (
    MAX_DEPTH,
    MAX_INT_BITS,
    MAX_KEY,
    MAX_NODES,
    MAX_TUPLE_KEYS,
    MAX_VALUES,
)

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**200), 2**200)
    | st.floats(allow_nan=True)
    | st.text(st.characters())
    | st.binary()
)
keys = st.text() | st.integers(-(2**59), 2**59) | st.tuples(st.integers(0, 9), st.text())
plain = st.recursive(
    scalars,
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(keys, inner),
    max_leaves=20,
)
arrays = hnp.arrays(
    st.sampled_from([d for d in DTYPES if d != "bfloat16"]).map(np.dtype),
    hnp.array_shapes(min_dims=0, min_side=0),
)


def same(a: Any, b: Any) -> bool:
    """Equal in type, structure and bits: NaN is NaN, -0.0 is not 0.0, True is not 1."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return struct.pack("d", a) == struct.pack("d", b) or (math.isnan(a) and math.isnan(b))
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(map(repr, a)) == list(map(repr, b)) and all(map(same, a.values(), b.values()))
    if isinstance(a, np.ndarray | np.generic):
        return bool(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes())
    return bool(a == b)


@given(plain)
def test_plain_values_come_back_the_same(value: Any) -> None:
    assert same(roundtrip(value), value)


@given(arrays)
def test_arrays_come_back_bit_for_bit_in_every_dtype_and_shape(value: Any) -> None:
    assert same(roundtrip(value), value)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (2, 3)])
def test_tensors_come_back_bit_for_bit(dtype: str, shape: tuple[int, ...]) -> None:
    if dtype == "uint16" and not shape:
        pytest.skip("torch cannot fill a scalar uint16 tensor at random")
    value = (torch.randn(shape) * 50).abs().to(torch.float32).to(getattr(torch, dtype))
    got = roundtrip(value)
    assert (got.dtype, got.shape) == (value.dtype, value.shape)
    assert (
        got.contiguous().numpy(force=True).tobytes() == value.numpy().tobytes()
        if dtype != "bfloat16"
        else True
    )
    assert bool((got.double() == value.double()).all())


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, -0.0, 5e-324, True, 1, b"", "", (), [], {}, set()]
)
def test_the_values_that_json_has_no_word_for_survive(value: Any) -> None:
    assert same(roundtrip(value), value)


def test_negative_zero_and_nan_bits_survive_in_bfloat16() -> None:
    bits = (
        torch.tensor([0x8000, 0x7FC1, 0xFF80, 0x0001], dtype=torch.int32)
        .to(torch.uint16)
        .view(torch.bfloat16)
    )
    assert torch.equal(roundtrip(bits).view(torch.int16), bits.view(torch.int16))


def test_views_cross_as_their_values_not_as_their_memory() -> None:
    base = torch.arange(24.0).view(4, 6)
    assert torch.equal(roundtrip(base.t()[1::2]), base.t()[1::2])
    lazily_negative = torch.tensor([1 + 2j, 3 - 4j]).conj().imag
    assert lazily_negative.is_neg()
    assert torch.equal(roundtrip(lazily_negative), lazily_negative.resolve_neg())
    assert same(roundtrip(np.arange(10)[::-3]), np.arange(10)[::-3].copy())


def test_a_truth_value_has_one_bit_whatever_byte_was_sent() -> None:
    frame = encode(np.array([True, False]))
    got = decode(frame[:-2] + b"\x02\x00")
    assert got.tolist() == [True, False]
    assert got.view(np.uint8).tolist() == [1, 0]


class Equal(float):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = float.__hash__


def _nest(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


NOT_PLAIN = {
    "a float subclass": Equal(1.0),
    "a list subclass": type("Batch", (list,), {})([1]),
    "a list with one in it": [1, {"a": Equal(2.0)}],
    "a function": len,
    "an object": object(),
    "a complex number": 1j,
    "an object array": np.array([object()]),
    "an array of strings": np.array(["a"]),
    "an array of strings of any length": np.array(["a", "b"], dtype=np.dtypes.StringDType()),
    "a masked array": np.ma.array([1]),
    "a sparse tensor": torch.eye(2).to_sparse(),
    "a tensor without values": torch.empty(2, device="meta"),
    "a complex tensor": torch.zeros(2, dtype=torch.complex64),
    "a generator": (x for x in [1]),
    "a nest": _nest(MAX_DEPTH + 1),
    "a deep nest": _nest(100_000),
    "a list that holds itself": (lambda x: x.append(x) or x)([]),
    "an enormous integer": 1 << MAX_INT_BITS,
    "an array that is too large": np.zeros(2**27, np.uint8),
    "a list that is too long": [0] * 600_000,
    "a key that is an array": {(np.int64(1),): 2},
    "a key made to collide": {2**61 - 1: 1},
    "keys that could be": {(i, 0): 1 for i in range(MAX_TUPLE_KEYS + 1)},
    "members that could be": {((i,),) for i in range(MAX_TUPLE_KEYS)},
}


class Cost(NamedTuple):
    flops: int
    n_bytes: int


class Liar(tuple):
    """Says nothing true of what is in it."""

    def __iter__(self) -> Any:
        return iter([7])

    def __len__(self) -> int:
        return 10**9

    def __getitem__(self, at: Any) -> Any:
        return 7


class Bound(str, Enum):  # noqa: UP042  as older courses write it
    MEMORY = "memory"
    COMPUTE = "compute"

    def __str__(self) -> str:
        return "it is " + self.value


class Chips(IntEnum):
    FEW = 2


class Shouting(int):
    def __int__(self) -> int:
        return 7

    __index__ = __int__


FORMS = {
    "a named tuple": (Cost(3, 4), (3, 4)),
    "a namedtuple": (namedtuple("Pair", "a b")(1, "x"), (1, "x")),
    "one with others in it": (Cost(Cost(1, 2), [Liar((Bound.MEMORY,))]), ((1, 2), [("memory",)])),
    "an empty one": (namedtuple("Nothing", "")(), ()),
    "a tuple with methods of its own": (Liar((1, 2, 3)), (1, 2, 3)),
    "a shape": (torch.zeros(2, 3).shape, (2, 3)),
    "a member of an enumeration of str": (Bound.MEMORY, "memory"),
    "a list of them": ([Bound.MEMORY, "memory", Bound.COMPUTE], ["memory", "memory", "compute"]),
    "keys of a class of their own": (
        {Bound.MEMORY: 1, Cost(1, 2): 2, np.str_("a"): 3},
        {"memory": 1, (1, 2): 2, "a": 3},
    ),
    "members of a set": ({Cost(1, 2), Chips.FEW}, {(1, 2), 2}),
    "a member of an enumeration of int": (Chips.FEW, 2),
    "an int with methods of its own": (Shouting(3), 3),
    "a str that equals everything": (type("Any", (str,), {"__eq__": lambda *a: True})("a"), "a"),
    "an array of one string and no axes": (np.select([np.bool_(True)], ["few"], "many"), "few"),
    "one of any length": (np.array("few", dtype=np.dtypes.StringDType()), "few"),
    "the largest uint64": (np.uint64(2**64 - 1), 2**64 - 1),
    "a uint32": (np.uint32(5), 5),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_value_of_a_class_derived_from_tuple_str_or_int_arrives_as_a_plain_one(name: str) -> None:
    value, plain_value = FORMS[name]
    assert same(roundtrip(value), plain_value)
    assert same(decode_each(encode_each([value, (value,)])), [plain_value, (plain_value,)])


def test_named_tuples_have_the_limits_of_tuples() -> None:
    pairs = (MAX_NODES - 1) // 3  # each counts as three: itself and its parts
    assert len(roundtrip([Cost(1, 2)] * pairs)) == pairs
    deep: Any = 0
    for _ in range(MAX_DEPTH):
        deep = Cost(deep, 0)
    roundtrip(deep)
    keys = {Cost(i, 0): 1 for i in range(MAX_TUPLE_KEYS + 1)}
    for too_much in ([Cost(1, 2)] * (pairs + 1), Cost(deep, 0), Liar([0] * MAX_NODES), keys):
        with pytest.raises(ProtocolError):
            encode(too_much)


@dataclass
class Found:
    flops: int


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (Fraction(1, 2), r"type Fraction is not plain data; return an int or float$"),
        (Decimal("0.5"), r"type Decimal is not plain data; return an int or float$"),
        (Equal(1.0), r"type Equal .* return an int or float$"),
        ((x for x in [1]), r"type generator is not plain data; wrap it in list\(\.\.\.\)$"),
        ({"a": 1}.values(), r"type dict_values .* wrap it in list"),
        ({"a": 1}.keys(), r"type dict_keys .* wrap it in list"),
        (map(abs, [1]), r"type map .* wrap it in list"),
        (zip([1], [2], strict=True), r"type zip .* wrap it in list"),
        (Found(1), r"type Found .* a tuple or a dict, as the task says \(dataclasses\.asdict"),
        (Enum("Odd", "A").A, r"type Odd .* return its \.value$"),
        (object(), r"return numbers, strings, lists, tuples, dicts, arrays or tensors$"),
        (np.array([["a"]]), r"^an array of strings cannot be judged; return a str, or a list of"),
    ],
)
def test_what_stays_refused_is_told_what_to_return_in_its_place(value: Any, says: str) -> None:
    for holds in (value, [1, value], {"a": (value,)}):
        with pytest.raises(ProtocolError, match=says):
            encode(holds)


def test_an_async_function_is_told_what_is_wrong_with_it() -> None:
    async def answer() -> int:
        return 1

    made = answer()
    with pytest.raises(ProtocolError, match=r"coroutine .* write the function without async$"):
        encode(made)
    made.close()


@pytest.mark.parametrize("name", NOT_PLAIN)
def test_what_is_not_plain_data_is_refused_in_a_sentence(name: str) -> None:
    with pytest.raises(ProtocolError, match=r"^\w.{15,200}$"):
        encode(NOT_PLAIN[name])


def test_the_standard_librarys_lists_and_dicts_arrive_as_plain_ones() -> None:
    assert roundtrip([range(3), deque([1, 2])]) == [[0, 1, 2], [1, 2]]
    assert type(roundtrip(np.array(["a"])[0])) is str
    for made in (OrderedDict(a=1), defaultdict(int, a=1), Counter("a")):
        assert type(roundtrip(made)) is dict
        assert roundtrip(made) == {"a": 1}


@given(st.binary(max_size=400))
@draws(300)
def test_no_bytes_make_the_decoder_raise_anything_else(data: bytes) -> None:
    _decodes_or_protocol_error(data)


json_like = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["#", "v", "n", "id", "dtype", "shape", "x"]), inner, max_size=5
        )
        | st.fixed_dictionaries(
            {"#": st.sampled_from([*"ftsdbclo", "np", "ns", "pt", "?"]), "v": inner}
        )
        | st.fixed_dictionaries(
            {
                "#": st.sampled_from(["np", "ns", "pt", "b"]),
                "dtype": st.sampled_from([*DTYPES, "object", "float128", 3]),
                "shape": st.lists(st.integers(-2, 2**63), max_size=3) | inner,
                "n": st.integers(-1, 20),
            }
        )
    ),
    max_leaves=12,
)


@given(json_like, st.binary(max_size=24))
@draws(300)
def test_no_header_makes_the_decoder_raise_anything_else(header: Any, body: bytes) -> None:
    text = json.dumps(header).encode()
    _decodes_or_protocol_error(struct.pack(">I", len(text)) + text + body)


@given(plain, st.integers(0, 500), st.integers(0, 255), st.integers(0, 10))
def test_no_damage_to_a_frame_makes_the_decoder_raise_anything_else(
    value: Any, at: int, byte: int, cut: int
) -> None:
    frame = bytearray(encode(value))
    frame[at % len(frame)] = byte
    _decodes_or_protocol_error(bytes(frame[: len(frame) - cut]))


edits = st.lists(
    st.tuples(
        st.sampled_from(["set", "insert", "delete", "double", "swap"]),
        st.integers(0, 10**4),
        st.binary(min_size=1, max_size=6),
    ),
    min_size=1,
    max_size=6,
)


def _edited(frame: bytes, changes: list[tuple[str, int, bytes]]) -> bytes:
    """The frame after a few accidents; its length at the front is put right half of the time, so
    that more than the front is read."""
    data = bytearray(frame)
    for what, where, some in changes:
        at = where % (len(data) + 1)
        if what == "set":
            data[at : at + len(some)] = some
        elif what == "insert":
            data[at:at] = some
        elif what == "delete":
            del data[at : at + len(some)]
        elif what == "double":
            data[at:at] = data[at : at + 40]
        else:
            data[at:], data[:at] = data[:at], data[at:]
    if changes[0][1] % 2 and len(data) > 4:
        data[:4] = struct.pack(">I", min(len(data) - 4, changes[-1][1]))
    return bytes(data)


@given(plain | arrays | st.tuples(plain, arrays), edits)
@draws(400)
def test_no_accident_to_a_frame_makes_the_decoder_raise_anything_else(
    value: Any, changes: Any
) -> None:
    _decodes_or_protocol_error(_edited(encode(value), changes))


BOMBS = {  # a few bytes that ask for much, or megabytes that ask for more
    "many arrays of nothing": (
        b"[" + b",".join([b'{"#":"np","dtype":"int8","shape":[0],"n":0}'] * 50_000) + b"]"
    ),
    "many empty lists": b"[" + b",".join([b"[]"] * 600_000) + b"]",
    "many nulls": b"[" + b",".join([b"0"] * 1_000_000) + b"]",
    "one long text": b'"' + b"\\u0000" * 1_000_000 + b'"',
    "long numbers": b"[" + b",".join([b"9" * 1_200] * 6_000) + b"]",
    "numbers too long": b"[" + b",".join([b"9" * 4_200] * 1_900) + b"]",
    "long fractions": b"[" + b",".join([b"0." + b"9" * 4_000] * 1_900) + b"]",
    "an exponent": b"1e999999999",
    "a deep dict": b'{"#":"d","v":[[0,' * 400_000,
    "one key many times": b'{"#":"d","v":[' + b",".join([b"[0,0]"] * 200_000) + b"]}",
    "one word many times": b"{" + b",".join([b'"a":0'] * 800_000) + b"}",
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_or_is_what_it_weighs(name: str) -> None:
    _decodes_or_protocol_error(_frame(BOMBS[name].decode()))


def test_memory_is_taken_for_what_came_not_for_what_it_claims() -> None:
    frame = _frame('{"#":"np","dtype":"float64","shape":[99999999999],"n":8}', bytes(8))
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            decode(frame)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def _decodes_or_protocol_error(data: bytes) -> None:
    try:
        value = decode(data)
    except ProtocolError:
        return
    encode(value)  # whatever was accepted is plain


def _frame(header: str, body: bytes = b"") -> bytes:
    return struct.pack(">I", len(header.encode())) + header.encode() + body


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x00\x00",
        struct.pack(">I", 2**31) + b"1",
        _frame("[" * 100_000 + "]" * 100_000),
        _frame("NaN"),
        _frame("1" * 5000),
        _frame(str(1 << MAX_INT_BITS)),
        _frame(
            '{"#":"np","dtype":"float64","shape":[4611686018427387904,4611686018427387904],"n":0}'
        ),
        _frame('{"#":"np","dtype":"uint8","shape":[-1,-1],"n":1}', b"a"),
        _frame('{"#":"pt","dtype":"object","shape":[1],"n":8}', b"aaaaaaaa"),
        _frame('{"#":"s","v":[[1]]}'),
        _frame('{"#":"d","v":[[2305843009213693951,0]]}'),
        _frame('{"#":"f","v":"1e5"}'),
        _frame("1", b"left over"),
        _frame('{"a":1}'),
    ],
)
def test_frames_made_to_harm_are_protocol_errors(frame: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(frame)


def _colliding_pairs(n: int) -> list[tuple[int, int]]:
    """Pairs of ordinary integers that all have one hash: CPython's hash of a tuple has no secret,
    and can be run backwards."""
    word, prime_1, prime_2, prime_5 = (
        2**64,
        11400714785074694791,
        14029467366897019727,
        2870177450012600261,
    )
    turned = 1234567 * pow(prime_1, -1, word) % word
    wanted = ((turned >> 31) | (turned << 33)) % word
    pairs = []
    for first in itertools.count(1):
        sum_1 = (prime_5 + first * prime_2) % word
        lane = ((sum_1 << 31) | (sum_1 >> 33)) * prime_1 % word
        second = (wanted - lane) * pow(prime_2, -1, word) % word
        if second < MAX_KEY:
            pairs.append((first, second))
        if len(pairs) == n:
            return pairs
    raise AssertionError


def test_keys_chosen_to_collide_do_not_reach_a_hash_table_in_numbers() -> None:
    pairs = _colliding_pairs(MAX_TUPLE_KEYS + 1)
    if len({hash(p) for p in pairs}) > 1:
        pytest.skip("this Python hashes tuples in another way")
    keys = [f'{{"#":"t","v":[{a},{b}]}}' for a, b in pairs]
    assert len(decode(_frame(f'{{"#":"s","v":[{",".join(keys[:-1])}]}}'))) == MAX_TUPLE_KEYS
    for frame in (
        f'{{"#":"s","v":[{",".join(keys)}]}}',
        f'{{"#":"d","v":[{",".join(f"[{k},0]" for k in keys)}]}}',
    ):
        with pytest.raises(ProtocolError, match="tuples"):
            decode(_frame(frame))


def test_references_cross_as_data_but_not_where_only_values_may() -> None:
    references = [Callback(3), Callback(3, lends=True), ObjectRef(4)]
    frame = encode(references)
    assert decode(frame) == references
    with pytest.raises(ProtocolError):
        decode(frame, plain=True)


@given(st.lists(plain, max_size=4))
def test_several_values_in_a_frame_come_back_the_same(values: list[Any]) -> None:
    assert same(decode_each(encode_each(values)), values)


def test_each_value_of_a_frame_has_a_values_limits() -> None:
    many = [None] * (MAX_NODES - 1)
    assert len(decode_each(encode_each([many, many]))) == 2
    for too_much in ([many, [*many, None]], [0] * (MAX_VALUES + 1), [_nest(MAX_DEPTH + 1)]):
        with pytest.raises(ProtocolError):
            encode_each(too_much)
        with pytest.raises(ProtocolError):
            decode_each(_frame(json.dumps(too_much)))
    for no_list in ("{}", '"ab"', "1", '{"#":"t","v":[1,2]}'):
        with pytest.raises(ProtocolError):
            decode_each(_frame(no_list))


def test_what_is_no_data_crosses_as_a_reference_and_only_to_who_takes_references() -> None:
    def stand_in(value: Any) -> Callback | None:
        return Callback(7) if callable(value) else None

    frame = encode_each([[len, {"f": (len, 1)}]], stand_in)
    assert decode_each(frame, refer=lambda reference: ("met", reference)) == [
        [("met", Callback(7)), {"f": (("met", Callback(7)), 1)}]
    ]
    with pytest.raises(ProtocolError):
        decode_each(frame, plain=True)
    with pytest.raises(ProtocolError, match="object"):
        encode_each([object()], stand_in)


def test_a_copy_shares_nothing_with_the_original() -> None:
    original = {"a": [1, 2], "x": np.zeros(2), "t": torch.zeros(2)}
    copy = roundtrip(original)
    copy["a"].append(3)
    copy["x"][0] = copy["t"][0] = 7
    assert original["a"] == [1, 2]
    assert float(original["x"].sum()) == float(original["t"].sum()) == 0
