def pack(codes, bits):
    rows = np.array(codes, dtype=np.uint8).reshape(-1, 1)
    stream = np.unpackbits(rows, axis=1, count=bits, bitorder="little")
    return np.packbits(stream, bitorder="little").tolist()


def unpack(data, bits, n):
    stream = np.unpackbits(np.array(data, dtype=np.uint8), count=bits * n, bitorder="little")
    codes = np.packbits(stream.reshape(n, bits), axis=1, bitorder="little")
    return codes.flatten().tolist()
