"""What runs in a pool, how fast: against the bare card in the same run, against memory mapped by hand, against offload to the host.

One card crosses no link: what is "spilled" here lies on the same card, so these figures show what the pool's own workings cost. What far
memory costs, and which allocation pays, is traced with pinned host memory in the place of a donor."""

import importlib.util
import statistics
import subprocess
import sys

from checks.programs import Quiet, ended
from rig import GIB, PROGRAMS, Failed, Pool, Skipped, facts, run

BENCH = PROGRAMS / "bench"


def checks(machine, table):
    table.attempt("steps of an allocation, µs (noted)", lambda: steps(machine, table))
    table.attempt("spilled memory against memory mapped by hand", lambda: spill(machine, table))
    table.attempt("a working set that fits", lambda: fits(machine, table))
    table.attempt("a chain of small kernels", lambda: chain(machine, table))
    table.attempt("products with nine tenths of the pool full", lambda: gemm(machine, table))
    table.attempt("products in a full pool whose donors are far, by policy", lambda: policies(machine, table))
    table.attempt("which far allocation costs a product its speed (noted)", lambda: trace(machine, table))
    table.attempt("twice the primary: pool against accelerate's offload", lambda: offload(machine, table))


def figures(command, env, timeout=200):
    """`figure` lines of a program that must end well; its checks must hold."""
    done = run(command, env, timeout)
    ended(done, "run", Quiet())
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("figure ")]
    if not rows:
        raise Failed(f"no figures: {done.stderr[-300:]}")
    digests = {line.split()[1]: line.split()[2] for line in done.stdout.splitlines() if line.startswith("digest ")}
    return {name: float(value) for _, name, value in rows}, digests


def needs(*packages):
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise Skipped(f"no {package}")


def steps(machine, table):
    found = facts([machine.compile("steps.c")], machine.bare_env())
    relay = machine.compile("relay.c")
    for mib, rounds in ((2, 64), (64, 64), (1024, 16), (8192, 8)):
        between = facts([relay, mib, rounds], machine.bare_env())
        found.update({f"relay_{mib}MiB_{name}": value for name, value in between.items()})
    table.note("steps", {name: float(value) for name, value in found.items()})
    return ", ".join(f"{name}={value}" for name, value in found.items() if "_whole" in name or name.startswith("relay_64MiB"))


def spill(machine, table):
    """One block of the same size and seam, three ways, taking turns."""
    program = machine.compile("runtime.cu", "-cudart=static")
    pool = Pool(machine, "spill")
    local = (pool.cap - pool.reserve) // GIB
    block = local + 8
    runs = {"native": [], "mapped": [], "pooled": []}
    try:
        for _ in range(3):
            runs["native"].append(facts([program, "speed", block], machine.bare_env()))
            runs["mapped"].append(facts([program, "mapped", block, local], machine.bare_env()))
            runs["pooled"].append(facts([program, "speed", block], pool.env()))
    finally:
        pool.close()
    names = ("read_gb_per_s", "write_gb_per_s", "copy_gb_per_s")
    median = {kind: {name: statistics.median(float(one[name]) for one in runs[kind]) for name in names} for kind in runs}
    table.note("spill", median)
    ratios = {name: median["pooled"][name] / median["mapped"][name] for name in names}
    detail = ", ".join(f"{name} {median['pooled'][name]:.0f} of {median['mapped'][name]:.0f} mapped by hand ({ratios[name]:.3f}), {median['native'][name]:.0f} native" for name in names)
    if min(ratios.values()) < 0.95:
        raise Failed(detail)
    return detail


def fits(machine, table):
    needs("torch")
    program = [sys.executable, BENCH / "train.py"]
    pool = Pool(machine, "fits")
    runs = {"bare": [], "pooled": []}
    try:
        for kind in ("bare", "pooled", "pooled", "bare"):
            runs[kind].append(figures(program, machine.bare_env() if kind == "bare" else pool.env())[0])
    finally:
        pool.close()
    median = {kind: {name: statistics.median(one[name] for one in runs[kind]) for name in runs["bare"][0]} for kind in runs}
    table.note("fits", median)
    table.note("fits_runs", runs)
    ratio = median["pooled"]["train_tokens_per_s"] / median["bare"]["train_tokens_per_s"]
    detail = f"{median['bare']['train_tokens_per_s']:.0f} tokens/s bare, {ratio:.4f} pooled, {median['bare']['train_peak_mib']:.0f} MiB at most"
    if ratio < 0.98:
        raise Failed(detail)
    return detail


def chain(machine, table):
    """The processor's mood differs from process to process: many short runs, in an order that favours neither."""
    needs("torch")
    program = [sys.executable, BENCH / "chain.py"]
    pool = Pool(machine, "chain")
    runs = {"bare": [], "pooled": []}
    try:
        for kind in ("bare", "pooled", "pooled", "bare") * 3:
            runs[kind].append(figures(program, machine.bare_env() if kind == "bare" else pool.env())[0])
    finally:
        pool.close()
    table.note("chain", runs)
    rates = {kind: sorted(one["small_kernels_per_s"] for one in runs[kind]) for kind in runs}
    told = {kind: f"{rates[kind][0]:.0f} to {rates[kind][-1]:.0f}, median {statistics.median(rates[kind]):.0f}" for kind in rates}
    return f"kernels/s bare {told['bare']}; pooled {told['pooled']}"


def gemm(machine, table):
    needs("torch")
    pool = Pool(machine, "gemm")
    program = [sys.executable, BENCH / "gemm.py", pool.total / GIB, 32, "512,2048,8192"]
    try:
        bare, _ = figures(program, machine.bare_env())
        pooled, _ = figures(program, pool.env())
    finally:
        pool.close()
    table.note("gemm", {"bare": bare, "pooled": pooled})
    detail = ", ".join(f"{name} {pooled[name]:.0f} of {bare[name]:.0f} ({pooled[name] / bare[name]:.3f})" for name in bare if name != "filled_gib")
    low = [name for name in bare if "tflops" in name and name.startswith("first") and pooled[name] < bare[name] * 0.95]
    if low:
        raise Failed(f"{low}: {detail}")
    return f"{bare['filled_gib']:.0f} GiB of weights: {detail}"


POLICIES = {
    "no reserve": ({"reserve_bytes": 0}, {}),
    "reserve": ({}, {}),
    "reserve, expandable segments": ({}, {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
    "interleave": ({"placement": "interleave"}, {}),
    "balanced": ({"placement": "balanced"}, {}),
}


def policies(machine, table):
    """The one link that a single card has is the host's: donors' chunks are host memory here, at a seventh of NVLink's speed."""
    needs("torch")
    cap, donor = 8 * GIB, 4 * GIB
    program = [sys.executable, BENCH / "gemm.py", (cap + 3 * donor) / GIB, 16, "512,2048,8192"]
    found = {"native": figures(program, machine.bare_env())[0]}
    for name, (policy, settings) in POLICIES.items():
        pool = Pool(machine, f"far-{name}", cap=cap, donor_bytes=donor, far=True, **policy)
        try:
            found[name] = figures(program, pool.env(**settings))[0]
        except Failed as reason:
            table.add(f"far donors, {name}", "failed", reason)
        finally:
            pool.close()
    table.note("policies", found)
    native = found["native"]
    share = lambda name, figure: found[name][figure] / native[figure]
    detail = "; ".join(
        f"{name}: first weights {share(name, 'first_512_tflops'):.3f}, {share(name, 'first_2048_tflops'):.3f}, {share(name, 'first_8192_tflops'):.3f},"
        f" last {share(name, 'last_512_tflops'):.3f} of native"
        for name in found if name != "native"
    )
    if min(share("reserve", f"first_{batch}_tflops") for batch in (512, 2048, 8192)) < 0.95:
        raise Failed(detail)
    return f"at batch 512, 2048, 8192: {detail}"


def trace(machine, table):
    needs("torch")
    library = machine.work / "far.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, BENCH / "far.c", "-ldl"], check=True, timeout=60)
    found, _ = figures([sys.executable, BENCH / "trace.py", library], machine.bare_env())
    table.note("trace", found)
    batches = sorted({int(name.split("_")[1]) for name in found if name.endswith("_ms")})
    lines = []
    for batch in batches:
        local = found[f"local_{batch}_ms"]
        parts = ", ".join(f"{part} {found[f'{part}_{batch}_ms'] / local:.1f}×" for part in ("weight", "input", "output", "workspace"))
        lines.append(f"batch {batch}: {local:.3f} ms local; far {parts}")
    return f"far memory reads {found['far_read_gb_per_s']:.0f} GB/s; " + "; ".join(lines)


def offload(machine, table):
    """Four ways in turn: the whole card, a pool on the card, a pool whose donors lie behind the host link, accelerate over the same link."""
    needs("torch", "transformers", "accelerate")
    primary, program = 4, [sys.executable, BENCH / "offload.py"]
    pool = Pool(machine, "offload", cap=primary * GIB, donor_bytes=4 * GIB)
    far = Pool(machine, "offload-far", cap=primary * GIB, donor_bytes=4 * GIB, far=True)
    ways = {"whole": machine.bare_env(), "pooled": pool.env(), "far": far.env(), "accelerate": machine.bare_env()}
    runs, logits = {way: [] for way in ways}, {}
    try:
        for way in ways:
            measured, logits[way] = figures([*program, way, primary], ways[way])
            runs[way].append(measured)
    finally:
        pool.close()
        far.close()
    best = {way: {name: max(one[name] for one in runs[way]) for name in runs[way][0]} for way in runs}
    table.note("offload", best)
    table.note("offload_runs", runs)
    if any(logits[way] != logits["whole"] for way in ways):
        raise Failed(f"logits differ: {logits}")
    detail = "; ".join(f"{way} {best[way]['prefill_tokens_per_s']:.0f} prompt, {best[way]['decode_tokens_per_s']:.2f} decode tokens/s" for way in ways)
    return f"{best['whole']['weights_mib']:.0f} MiB of weights over {primary} GiB, logits bit-equal: {detail}"
