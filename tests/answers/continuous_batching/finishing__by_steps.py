def finishing(lengths, seats):
    def serve(joins):
        """Step by step; joins(n_running): how many may join."""
        done, left, queue, step = [0] * len(lengths), {}, list(range(len(lengths))), 0
        while queue or left:
            free = joins(len(left))
            for i in queue[:free]:
                left[i] = lengths[i]
            queue = queue[free:]
            n = min(left.values())  # nothing happens before somebody ends
            step += n
            left = {i: tokens - n for i, tokens in left.items()}
            for i in [i for i, tokens in left.items() if tokens == 0]:
                done[i] = step
                del left[i]
        return done

    static = serve(lambda n: 0 if n else seats)
    for i in range(0, len(static), seats):
        static[i : i + seats] = [max(static[i : i + seats])] * len(static[i : i + seats])
    return {"static": static, "continuous": serve(lambda n: seats - n)}
