"""Second transcription of the published deterministic gradWeight planner, for comparison only.

Written from the specification page alone, step by step, with the page's names and with the sizes of
the A2 and A3 products as literal numbers: one mutable state, Python integers without a width, the
unsigned subtraction spelled as a modulus. Slow and obvious; it shares no code with
``npu_sim.tiling``.
"""

# ruff: noqa: N802 (the page's own names)

from math import gcd


def ceil(a, b):
    return (a + b - 1) // b


def align(a, b):
    return b * ceil(a, b)


def route(T, To, K, pad, e):
    if pad == 0 and K == T:
        return "matmul"
    k0, q = (16, 1) if e == 2 else (8, 2)
    a1 = 16 * k0 * e * q
    if To >= 16:
        b1 = T * (1 if To % 16 == 0 else 2) * q * k0 * e
    else:
        f = ceil(16, To) + (16 % To != 0)
        b1 = align(f * T, 16) * q * k0 * e
    return "planner" if pad < K and a1 + b1 <= 524288 else "gate_failed"


class Planner:
    """State of the planner; one method per step of the page."""

    def __init__(self, T, B, Cin, Cout, K, pad, e, C):
        self.T, self.B, self.K, self.e, self.C = T, B, K, e, C
        self.To = T + 2 * pad - K + 1
        self.C0 = 16 if e == 2 else 8
        self.cin1 = ceil(Cin, self.C0)
        cout1 = ceil(Cout, 16) if e == 2 else align(Cout, 16) // 8
        self.M, self.N, self.KD = cout1 * self.C0, K * self.cin1 * self.C0, align(self.To, self.C0)
        self.steps, self.db, self.d = 1, 2, 1

    def step_1(self):
        e = self.e
        self.bM, self.bN = (256, 128) if self.M > 128 else (128, 256)
        bK = 128 // e
        a, b = bK * self.bM, bK * self.bN
        self.bM = min(self.bM, align(self.M, 16))
        self.bN = min(self.bN, align(self.N, 16))
        self.aK = align(self.KD, 16)
        if self.aK < bK:
            self.bK = self.aK
        else:
            self.bK = min(16 * max(a // self.bM // 16, 1), 16 * max(b // self.bN // 16, 1), self.aK)
            if self.To < self.bK and self.To % 16 == 0:
                self.bK = self.bK // self.To * self.To

    def rows(self):
        k, To = self.bK * self.steps, self.To
        if k % To == 0 or To % k == 0:
            return ceil(k, To)
        return k // To + 2 if k > To else 2

    def c(self, v):
        n, K = ceil(v, self.C0), self.K
        extra = 0
        if n < K and K % n != 0:
            extra = 1
        if (2 * n) % K != 0:
            extra = 1
        return ceil(n, K) + extra

    def BL1(self):
        return self.rows() * self.T * self.c(self.bN) * self.C0

    def l1(self):
        return self.steps * self.bK * self.bM * self.e * self.db + self.BL1() * self.e * self.db

    def F(self):
        return self.l1() <= 524288

    def set_depth(self, d):
        self.d = d
        self.db = 1 if d == 1 else 2
        self.steps = max(min(d // self.db, ceil(self.KD, self.bK)), 1)

    def step_3(self):
        for d in [16, 14, 12, 10, 8, 6, 4, 2, 1]:
            self.set_depth(d)
            if self.F():
                return True
        return False

    def gap(self):
        return max(0, self.bK * self.bM * self.e + self.BL1() * self.e - 524288)

    def step_4(self):
        e, T, To = self.e, self.T, self.To
        n = ceil(self.gap(), 16 * self.bM * e + ceil(self.c(self.bN) * self.C0 * T * 16 * e, To))
        nk = max(self.bK - 16 * n, 0)
        if nk >= 16:
            self.bK = nk
            while self.bK > 16 and not self.F():
                self.bK -= 16
                if self.bK <= To and (To % self.bK == 0 or To % 16 != 0):
                    break
            if self.F():
                return
        else:
            self.bK = 16
        self.step_4b()
        self.step_4c()

    def step_4b(self):
        e = self.e
        while self.bM > 16 and self.bM > self.bN and not self.F():
            self.bM -= 16
        while self.bN > 16 and self.bN > self.bM and not self.F():
            self.bN -= 16
        if self.F():
            return
        n = ceil(self.gap(), self.bK * 16 * e + ceil(self.rows() * self.T * 16 * e, self.K))
        if self.bM < 16 * (n + 1):
            self.bM = self.bN = 16
            return
        self.bM = self.bM - 16 * n
        self.bN = self.bM
        while self.bM > 16 and not self.F():
            if self.c(self.bM) < self.c(self.bN):
                self.bN = self.bM
            else:
                self.bM -= 16

    def step_4c(self):
        e = self.e
        free = (
            524288 - self.steps * self.bK * self.bM * e * self.db - self.BL1() * e * self.db
        ) % 2**64
        old = self.bM
        self.bM = min(
            16 * max(131072 // e // 2 // old // 16, 1),
            old + 16 * (free // (self.bK * 16 * e)),
            self.M,
        )
        while self.F():
            self.bK += 16
            if not self.F():
                self.bK -= 16
                break
        if self.bK > self.aK:
            self.bK = self.aK
            return
        by_m = 16 * max(65536 // e // 2 // self.bM // 16, 1)
        by_n = 16 * max(65536 // e // 2 // self.bN // 16, 1)
        self.bK = min(self.bK, self.aK, by_m, by_n)
        if self.To < self.bK and self.To % 16 == 0:
            self.bK = self.bK // self.To * self.To
        self.set_depth(self.d)

    def step_5(self):
        KC0 = self.K * self.C0
        self.SM, self.SN, self.SK = self.bM, max(self.bN // KC0, 1) * KC0, self.KD
        self.total = ceil(self.M, self.SM) * ceil(self.N, self.SN)

    def step_6(self):
        C = self.C
        if self.total % C == 0 and self.SN == self.N:
            return
        base = ceil(self.M, self.SM)

        def widen(x):
            return max(min(ceil(self.cin1, x // gcd(base, x)) * self.K * self.C0, self.N), self.SN)

        new = None
        if base * ceil(self.N, widen(C)) % C == 0:
            new = widen(C)
        else:
            mx = max(self.KD // self.bK, self.B)
            if mx > 1 and self.total % C + 2 < C:
                for q in range(2, min(mx, C) + 1):
                    n = widen(C // q)
                    r = base * ceil(self.N, n) % C
                    if r * q == C or r + 2 >= C:
                        new = n
                        break
        if new is not None:
            self.SN = new
            self.total = base * ceil(self.N, self.SN)

    def step_7(self):
        self.bN = min(self.bN, align(self.SN, 16))
        units = self.bN // 16
        t = (align(self.SN, 16) // 16) % units
        if t not in (1, 2) or not 2 * t < units:
            return
        kn = ceil(units, self.K)
        if kn * self.K > max(units, 16):
            kn = max(kn - 1, 1)
        if kn * self.K > max(units, 16):
            return
        before = self.bM, self.bN, self.bK
        self.bN = 16 * kn * self.K
        mM = min(32768 // self.bN, self.bM)
        b = self.bM // 2 if self.bM > 128 and mM < self.bM else mM
        self.bM = max(min(mM, b) // 16, 1) * 16
        self.bK = 16 * max(65536 // self.e // 2 // max(self.bM, self.bN) // 16, 1)
        while self.bK > 16 and not self.F():
            self.bK -= 16
        if not self.F():
            self.bM, self.bN, self.bK = before
        else:
            self.set_depth(self.d)
            self.step_5()

    def steps_9_and_10(self):
        C, total, B = self.C, self.total, self.B
        self.used = C
        if total < C:
            self.used = total if total > C // 2 else C
        self.stream, self.S = 0, 0
        r = total % self.used
        if 0 < r <= self.used // 2 and self.used // r > 1:
            q = self.used // r
            S = ceil(B, ceil(B, q))
            if S > 1:
                self.stream, self.S = 1, S
        if r == total:
            self.used = min(max(total * (self.S or 1), 1), C)

    def plan(self):
        self.step_1()
        if not self.step_3():
            self.step_4()
        self.step_5()
        self.step_6()
        self.step_7()
        self.steps_9_and_10()
        return {
            "status": "success",
            "tiling_key": 4,
            "block_dim": self.used,
            "workspace_bytes": 16 * 2**20
            + (4 * self.SM * self.SN * self.used if self.stream else 0),
            "tiling": {
                "mValue": self.M,
                "nValue": self.N,
                "kValue": self.KD,
                "totalCnt": self.total,
                "baseM": self.bM,
                "baseN": self.bN,
                "baseK": self.bK,
                "stepM": 1,
                "stepN": 1,
                "stepKa": self.steps,
                "stepKb": self.steps,
                "cl0Pbuffer": 2 if 8 * self.bM * self.bN <= 131072 else 1,
                "al1Pbuffer": self.db,
                "bl1Pbuffer": self.db,
                "iterateOrder": int(self.M > self.N),
                "bl1Bound": self.BL1(),
                "singleCoreM": self.SM,
                "singleCoreN": self.SN,
                "singleCoreK": self.SK,
                "usedCoreNum": self.used,
                "streamKType": self.stream,
                "coreStreamK": self.S,
            },
        }


def plan(T, B, Cin, Cout, K, pad, e, C):
    """Return ``route``, and ``expect`` if it is "planner", of a golden line (e bytes, C cores)."""
    taken = route(T, T + 2 * pad - K + 1, K, pad, e)
    return (taken, Planner(T, B, Cin, Cout, K, pad, e, C).plan() if taken == "planner" else None)
