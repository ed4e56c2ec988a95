def head_tests():
    def groups(K, G):
        return K * G, K, sorted(list(range(K)) * G)

    return [groups(3, 6), groups(7, 1), groups(1, 9), groups(4, 3), groups(2, 5)]
