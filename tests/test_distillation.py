"""The losses of distillation are the divergences they are named after, in the direction said."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional

from twophase.kernels.pruning import hidden_loss, logits_loss

STUDENT = torch.tensor([[[0.2, -1.0, 2.0], [1.0, 0.0, 0.0]]])
TEACHER = torch.tensor([[[1.5, 0.3, -0.5], [0.0, 2.0, 1.0]]])


def kl_by_hand(p: torch.Tensor, q: torch.Tensor, temperature: float) -> float:
    """Mean over tokens of KL(p ‖ q) of logits, in plain Python."""
    found = []
    for one, other in zip(p.flatten(0, 1).tolist(), q.flatten(0, 1).tolist(), strict=True):
        a, b = ([math.exp(x / temperature) for x in row] for row in (one, other))
        a, b = [x / sum(a) for x in a], [x / sum(b) for x in b]
        found.append(sum(x * math.log(x / y) for x, y in zip(a, b, strict=True)))
    return sum(found) / len(found)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 4.0])
def test_logits_loss_is_the_divergence_of_the_teacher_from_the_student(temperature):
    found = float(logits_loss(STUDENT, TEACHER, temperature)) / temperature**2
    assert found == pytest.approx(kl_by_hand(TEACHER, STUDENT, temperature), rel=1e-5)
    back = float(logits_loss(STUDENT, TEACHER, temperature, reverse=True)) / temperature**2
    assert back == pytest.approx(kl_by_hand(STUDENT, TEACHER, temperature), rel=1e-5)
    assert abs(found - back) > 1e-3


def test_it_is_torchs_kl_div_with_its_arguments_in_their_odd_order():
    own = functional.log_softmax(STUDENT, -1)
    taught = functional.softmax(TEACHER, -1)
    theirs = functional.kl_div(own, taught, reduction="none").sum(-1).mean()
    assert float(logits_loss(STUDENT, TEACHER)) == pytest.approx(float(theirs), rel=1e-6)


def test_gradients_keep_their_size_as_the_temperature_rises():
    """Hinton's limit: for high temperatures the gradient goes to (student − teacher) / V."""
    sizes = []
    for temperature in (50.0, 500.0):
        student = STUDENT.clone().requires_grad_(True)
        logits_loss(student, TEACHER, temperature).backward()
        sizes.append(float(student.grad.norm()))
    assert sizes[0] == pytest.approx(sizes[1], rel=0.05)
    assert sizes[1] > 0.1


def test_the_teacher_is_not_taught():
    teacher = TEACHER.clone().requires_grad_(True)
    student = STUDENT.clone().requires_grad_(True)
    (logits_loss(student, teacher) + hidden_loss([student], [teacher])).backward()
    assert teacher.grad is None
    assert student.grad is not None


def test_reverse_lets_a_student_leave_out_what_forward_makes_it_cover():
    """A teacher with two modes, a student that has one of them: KL(teacher ‖ student) is large,
    KL(student ‖ teacher) is ln 2 at most."""
    teacher = torch.tensor([[0.0, 0.0, -20.0]])
    student = torch.tensor([[0.0, -20.0, -20.0]])
    assert float(logits_loss(student, teacher)) > 5
    assert float(logits_loss(student, teacher, reverse=True)) == pytest.approx(
        math.log(2), rel=0.01
    )


def test_hidden_loss_is_zero_where_equal_and_one_for_a_silent_student():
    a, b = torch.randn(2, 3, 4), 10 * torch.randn(2, 3, 4)
    assert float(hidden_loss([a, b], [a, b])) == 0
    assert float(hidden_loss([0 * a, 0 * b], [a, b])) == pytest.approx(1)
    assert float(hidden_loss([a, 0 * b], [a, b])) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("run", "sentence"),
    [
        (lambda: logits_loss(STUDENT, TEACHER[:, :1]), "of the same tokens and vocabulary"),
        (lambda: logits_loss(STUDENT, TEACHER, 0.0), "a temperature is a number above 0"),
        (lambda: hidden_loss([], []), "streams come in pairs"),
        (lambda: hidden_loss([STUDENT], [TEACHER[:, :1]]), "as wide as its teacher's"),
    ],
)
def test_what_cannot_be_compared_is_refused_by_a_sentence(run, sentence):
    with pytest.raises(ValueError, match=sentence):
        run()
