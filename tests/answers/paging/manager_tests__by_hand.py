def manager_tests():
    pool = {"n_blocks": 4, "block_size": 2}
    a, b, c = "first", "second", "third"
    fork = [["allocate", a, 3], ["fork", a, b], ["fork", b, c]]
    write = [["append", b], ["append", c], ["append", a]]  # two copies; a writes in place
    end = [["free", b], ["free", a], ["free", c]]
    everything = [["allocate", "all", 8]]
    return [
        {**pool, "ops": [*fork, *write], "free": 0, "copies": 2, "refused": 0},
        {**pool, "ops": [*fork, *write, *end, *everything], "free": 0, "copies": 2, "refused": 0},
        {
            **pool,
            "ops": [*fork, ["free", a], ["allocate", "d", 4]],
            "free": 0,
            "copies": 0,
            "refused": 0,
        },
        {
            **pool,
            "ops": [*fork, *write, ["append", a], ["append", a]],
            "free": 0,
            "copies": 2,
            "refused": 2,
        },
        {
            **pool,
            "ops": [
                ["allocate", a, 7],
                ["append", a],
                ["append", a],
                ["free", a],
                ["allocate", b, 9],
                ["allocate", b, 8],
            ],
            "free": 0,
            "copies": 0,
            "refused": 2,
        },
        {
            "n_blocks": 1,
            "block_size": 4,
            "ops": [
                ["allocate", a, 1],
                ["fork", a, b],
                ["append", a],
                ["free", b],
                ["append", a],
                ["append", a],
                ["append", a],
                ["append", a],
            ],
            "free": 0,
            "copies": 0,
            "refused": 2,
        },
        {
            "n_blocks": 3,
            "block_size": 4,
            "ops": [
                ["allocate", a, 1],
                ["fork", a, b],
                ["append", b],
                ["append", b],
                ["append", a],
                ["append", a],
                ["append", b],
            ],
            "free": 1,
            "copies": 1,
            "refused": 0,
        },
        {**pool, "ops": [*fork, ["append", a]], "free": 1, "copies": 1, "refused": 0},
    ]
