from fractions import Fraction


def stops_paying(bits, group, flops_per_s, bytes_per_s):
    bits_per_weight = Fraction(bits) + Fraction(16, group)
    return math.ceil(bits_per_weight / 8 * flops_per_s / (2 * bytes_per_s))
