def decode_nf4(stored, levels, table):
    codes = np.array(stored["codes"], dtype=np.uint8)
    halves = np.stack([codes // 16, codes % 16], axis=1).flatten()[: stored["n"]]
    outer = np.array(stored["outer"]).repeat(256)[: len(stored["maxima"])]
    maxima = np.array(table)[stored["maxima"]] * outer + stored["mean"]
    return (np.array(levels)[halves] * maxima.repeat(64)[: stored["n"]]).tolist()
