import argparse, sys, time
from collections import Counter
from testbed.worlds.generator import a_world
from testbed.worlds.proof import prove
from testbed.worlds.judge import wrong

seed = int(sys.argv[1])
n = int(sys.argv[2])
t = time.process_time()
c = Counter()
w = Counter()
ex = {}
tg = tp = tj = 0
for i in range(seed, seed + n):
    a = time.perf_counter()
    world = a_world(i)
    b = time.perf_counter()
    ans = prove(world)
    d = time.perf_counter()
    x = wrong(world, ans)
    e = time.perf_counter()
    tg += b - a
    tp += d - b
    tj += e - d
    c[type(ans.verdict).__name__] += 1
    if x:
        w[__import__("re").sub(r"\d+", "N", x)] += 1
        ex.setdefault(__import__("re").sub(r"\d+", "N", x), []).append(i)
print(c, n / (time.process_time() - t), tg, tp, tj)
for k, v in w.most_common():
    print(v, k, ex[k][:6])
