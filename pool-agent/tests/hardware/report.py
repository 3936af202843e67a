#!/usr/bin/env python3
"""Tables and plots from the results of `suite.py --bench --out DIR`, into docs/benchmarks.md and docs/plots.

    report.py RESULTS.json... [--docs docs]

Several results are several runs: a table then shows the range over them, a plot the last. The document's part between the two marks is
replaced, all else stays. Needs matplotlib.
"""

import argparse
import json
import pathlib

BEGIN, END = "<!-- made by pool-agent/tests/hardware/report.py -->", "<!-- end of what report.py makes -->"
SIZES = ("2MiB", "20MiB", "64MiB", "256MiB", "1GiB", "8GiB", "20GiB")
STEPS = ("create", "export", "import", "close", "reserve", "map", "access", "unmap", "release")
PARTS = ("weight", "input", "output", "workspace")
CALLS = {
    "launch": "kernel launch (not intercepted)", "memory_info": "memory info", "total_memory": "total memory",
    "pointer_attribute": "a pointer attribute", "alloc_1KiB": "native allocation, 1 KiB", "alloc_1MiB": "native allocation, 1 MiB",
    "alloc_32MiB": "native allocation, 32 MiB", "free_32MiB": "native free, 32 MiB", "alloc_64MiB": "native allocation, 64 MiB",
    "alloc_1GiB": "native allocation, 1 GiB", "async_pair_1MiB": "stream-ordered allocation and free, 1 MiB",
}


def number(value):
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def span(values, show=number):
    shown = [show(value) for value in (min(values), max(values))]
    return shown[0] if shown[0] == shown[1] else " to ".join(shown)


class Runs:
    """The figures of all runs; a figure that a run lacks is passed over."""

    def __init__(self, documents):
        self.documents = documents
        self.figures = [document["figures"] for document in documents]

    def having(self, *names):
        return [figures for figures in self.figures if all(name in figures for name in names)]

    def last(self, name):
        return next((figures[name] for figures in reversed(self.figures) if name in figures), None)


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "|".join(["---"] + ["---:"] * (len(head) - 1)) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def conditions(runs):
    cards = {document["card"]["name"] for document in runs.documents}
    memory = {document["card"]["total"] >> 20 for document in runs.documents}
    drivers = {document["driver"] for document in runs.documents}
    many = len(runs.documents)
    which = "One run, on a machine" if many == 1 else f"{many} runs, each on another machine"
    return (
        f"{which} with one {', '.join(cards)} ({', '.join(map(str, memory))} MiB), driver "
        f"{', '.join(drivers)}, 16 x86-64 cores of a shared virtual machine; clocks and modes as found. Bare and pooled processes take "
        f"turns in one run{'' if many == 1 else '; a range is over runs'}. **Every pool here is a trial on one card** (`donors_on_primary`): a capped primary and "
        "three donors whose chunks the broker makes on the same card. Nothing crosses a link, so these figures show what the pool's own "
        "workings cost, not what memory behind a link does."
    )


def calls(runs):
    rows = []
    for name, words in CALLS.items():
        group = "speed" if name == "launch" else "calls"
        pairs = [figures[group][name] for figures in runs.having(group)]
        if pairs:
            added = [pooled - bare for bare, pooled in pairs]
            rows.append([words, span([bare for bare, _ in pairs]), span([pooled / bare for bare, pooled in pairs], "{:.2f}".format),
                         span(added, lambda value: f"{value:+,.0f}")])
    spilled = [figures["spilled"] for figures in runs.having("spilled")]
    for name, words in (("alloc_1GiB", "allocation of 1 GiB that spills"), ("alloc_8GiB", "allocation of 8 GiB that spills"), ("free_8GiB", "free of 8 GiB that spilled")):
        pairs = [one[name] for one in spilled]
        if pairs:
            rows.append([words, span([bare for bare, _ in pairs]), span([pooled / bare for bare, pooled in pairs], "{:.2f}".format),
                         span([pooled - bare for bare, pooled in pairs], lambda value: f"{value:+,.0f}")])
    return table(["call", "bare, ns", "pooled ÷ bare", "added, ns"], rows)


def steps(runs):
    found = [figures["steps"] for figures in runs.having("steps")]
    cell = lambda name: span([one[name] for one in found if name in one]) if any(name in one for one in found) else "–"
    rows = [[size.replace("MiB", " MiB").replace("GiB", " GiB"), *[cell(f"chunk_{size}_{step}") for step in STEPS], cell(f"local_{size}_whole"), cell(f"native_{size}_whole")] for size in SIZES]
    return table(["chunk", *STEPS, "local, mapped", "native"], rows)


def relay(runs):
    """Between two processes without a context, as broker and tenant are."""
    found = [figures["steps"] for figures in runs.having("steps") if "relay_2MiB_export" in figures["steps"]]
    names = ("create", "export", "send_and_close", "import", "close_last", "release_import", "release")
    rows = [[words, *[span([one[f"relay_{mib}MiB_{name}"] for one in found]) for name in names]] for mib, words in ((2, "2 MiB"), (64, "64 MiB"), (1024, "1 GiB"), (8192, "8 GiB"))]
    return table(["chunk", *[name.replace("_", " ") for name in names]], rows) if found else ""


def clients(runs):
    rows = []
    for name, words in (("imported", "import of one descriptor, bare driver"), ("leased", "chunk of 64 MiB through the broker")):
        for count in ("1", "16", "256"):
            found = [figures[name][count] for figures in runs.having(name)]
            if found:
                cell = lambda figure: span([float(one[figure]) for one in found])
                rows.append([words, count, cell("take_p50"), cell("take_p99"), cell("take_max"), cell("per_second")])
    return table(["what", "processes", "p50, µs", "p99, µs", "worst, µs", "a second"], rows)


def ratios(runs):
    rows = []
    add = lambda words, bar, values, note: rows.append([words, bar, span(values, "{:.3f}".format), note]) if values else None
    spill = [figures["spill"] for figures in runs.having("spill")]
    for name, words in (("read_gb_per_s", "kernel read"), ("write_gb_per_s", "kernel write"), ("copy_gb_per_s", "copy")):
        add(f"{words} over the seam ÷ memory mapped by hand", "≥ 0.95", [one["pooled"][name] / one["mapped"][name] for one in spill], f"{span([one['mapped'][name] for one in spill])} GB/s" if spill else "")
    fits = [figures["fits"] for figures in runs.having("fits")]
    for kind, words in (("pooled", "training step that fits"), ("spilled", "the same, spilled on the same card")):
        add(f"{words} ÷ bare", "≥ 0.98", [one[kind]["train_tokens_per_s"] / one["bare"]["train_tokens_per_s"] for one in fits if kind in one], f"{span([one['bare']['train_tokens_per_s'] for one in fits])} tokens/s")
    gemm = [figures["gemm"] for figures in runs.having("gemm")]
    for which in ("first", "last"):
        for batch in (512, 2048, 8192) if which == "first" else (512, 2048):
            name = f"{which}_{batch}_tflops"
            add(f"product of the {which} weights, batch {batch} ÷ bare", "≥ 0.95" if which == "first" else "", [one["pooled"][name] / one["bare"][name] for one in gemm], f"{span([one['bare'][name] for one in gemm])} TFLOP/s")
    starts = [figures["start_256_seconds"] for figures in runs.having("start_256_seconds")]
    add("256 processes started at once, seconds ÷ bare", "", [one["pooled"] / one["bare"] for one in starts], f"{span([one['bare'] for one in starts])} s bare, {span([one['pooled'] for one in starts])} s pooled" if starts else "")
    return table(["what", "bar", "ratio", "bare"], rows)


def trace(runs):
    found = runs.having("trace")
    rows = []
    for batch in (1, 64, 512, 2048):
        local = [figures["trace"][f"local_{batch}_ms"] for figures in found]
        slower = [span([figures["trace"][f"{part}_{batch}_ms"] / figures["trace"][f"local_{batch}_ms"] for figures in found], "{:.1f}".format) + " ×" for part in PARTS]
        rows.append([str(batch), span(local), *slower])
    return table(["batch", "all local, ms", *[f"far {part}" for part in PARTS]], rows)


WAYS = {"whole": "whole card", "pooled": "pool on one card", "far": "pool, donors behind the host link", "accelerate": "offload to the host"}


def offload(runs):
    found = [figures["offload"] for figures in runs.having("offload")]
    rows = []
    for name, words in (("prefill_tokens_per_s", "prompt, 8 × 512 tokens"), ("decode_tokens_per_s", "one token after another")):
        cell = lambda way: span([one[way][name] for one in found if way in one]) if any(way in one for one in found) else "–"
        rows.append([words, *map(cell, WAYS)])
    return table(["tokens/s", *WAYS.values()], rows)


def policies(runs):
    found = [figures["policies"] for figures in runs.having("policies")]
    names = ["first_1_gb_per_s", "first_512_tflops", "first_2048_tflops", "first_8192_tflops", "last_1_gb_per_s", "last_512_tflops", "last_2048_tflops"]
    cells = lambda values: [span(column) if column else "–" for column in values]
    rows = [["native", *cells([[one["native"][name] for one in found] for name in names])]]
    for policy in dict.fromkeys(policy for one in found for policy in one if policy != "native"):
        shares = [[one[policy][name] / one["native"][name] for one in found if policy in one] for name in names]
        rows.append([policy, *[span(column, "{:.3f}".format) for column in shares]])
    return table(["policy", *[f"first set, {what}" for what in ("batch 1", "512", "2048", "8192")], *[f"last set, {what}" for what in ("batch 1", "512", "2048")]], rows)


def document(runs):
    parts = [conditions(runs)]

    def add(title, needed, text, plot=None):
        if runs.having(needed):
            parts.append(f"### {title}\n\n{text(runs)}" + (f"\n\n![{title}](plots/{plot}.svg)" if plot else ""))

    add("What stays as fast", "spill", ratios, "ratios")
    add("Calls", "calls", calls)
    add("Steps of a chunk's life", "steps", lambda runs: "Bare driver, medians in µs; one process does all.\n\n" + steps(runs)
        + "\n\nThe same between two processes without a context, as broker and tenant are (the tenant opens one for mapping only):\n\n" + relay(runs), "steps")
    add("Many processes", "imported", clients, "clients")
    add("Which far allocation costs a product its speed", "trace", lambda runs: (
        f"bf16, 8192 × 8192 weights. Far memory is pinned host memory ({span([figures['trace']['far_read_gb_per_s'] for figures in runs.having('trace')])} GB/s "
        "read by a kernel), the one memory behind a link that a single card has; each allocation in turn is placed there. Times longer than all local:\n\n" + trace(runs)), "trace")
    add("Placement in a full pool whose donors are far", "policies", lambda runs: (
        "Layers of 8192 × 8192 in bf16 fill nine tenths of a pool of 8 + 3 × 4 GiB whose donors' chunks are host memory, so that they lie behind a real link, a seventh as fast as "
        "NVLink. The first set lies on the primary, the last on donors. Native in GB/s (batch 1) and TFLOP/s; policies as a share of it.\n\n" + policies(runs)), "policies")
    add("Twice the primary: pool against offload", "offload", lambda runs: (
        f"A Llama-shaped model, {span([figures['offload']['accelerate']['weights_mib'] for figures in runs.having('offload')])} MiB of bf16 weights, a primary of 4 GiB, to which accelerate's "
        "offload is held too; logits are bit-equal.\n\n" + offload(runs)), "offload")
    return "\n\n".join(parts)


def plots(runs, folder):
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "tarn", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    from matplotlib import pyplot

    def save(name, title, draw):
        figure, axes = pyplot.subplots(figsize=(6.4, 3.2))
        draw(axes)
        axes.set_title(title, fontsize=10)
        figure.tight_layout()
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
        pyplot.close(figure)

    if found := runs.last("steps"):
        def draw(axes):
            sizes = [size for size in SIZES if f"chunk_{size}_create" in found]
            bottom = [0.0] * len(sizes)
            for step in ("export", "close", "access", "create", "import", "map"):
                heights = [found.get(f"chunk_{size}_{step}", 0.0) for size in sizes]
                axes.bar(sizes, heights, bottom=bottom, label=step)
                bottom = [low + height for low, height in zip(bottom, heights)]
            axes.plot(sizes, [found[f"native_{size}_whole"] for size in sizes], "k.--", label="native allocation")
            axes.set_ylim(0, 3000)
            axes.set_ylabel("µs (cut off at 3,000)")
            axes.legend(fontsize=7, ncols=2)
        save("steps", "A chunk from its creation to first use", draw)
    if runs.last("imported"):
        def draw(axes):
            for name, words in (("imported", "import, bare driver"), ("leased", "lease of 64 MiB")):
                found = runs.last(name)
                counts = sorted(map(int, found))
                for figure, style in (("take_p50", "o-"), ("take_p99", "o:")):
                    axes.loglog(counts, [float(found[str(count)][figure]) for count in counts], style, label=f"{words}, {figure[5:]}")
            axes.set_xlabel("processes at once")
            axes.set_ylabel("µs")
            axes.legend(fontsize=7)
        save("clients", "Taking a chunk while others do", draw)
    if found := runs.last("trace"):
        def draw(axes):
            batches = (1, 64, 512, 2048)
            for at, part in enumerate(PARTS):
                heights = [found[f"{part}_{batch}_ms"] / found[f"local_{batch}_ms"] for batch in batches]
                axes.bar([place + at * 0.2 - 0.3 for place in range(len(batches))], heights, 0.2, label=part)
            axes.set_yscale("log")
            axes.set_xticks(range(len(batches)), [f"batch {batch}" for batch in batches])
            axes.set_ylabel("times slower")
            axes.legend(fontsize=7, ncols=4)
        save("trace", "One allocation far, the others local", draw)
    if found := runs.last("policies"):
        def draw(axes):
            names = {"first_512_tflops": "first, 512", "first_2048_tflops": "first, 2048", "first_8192_tflops": "first, 8192", "last_512_tflops": "last, 512", "last_2048_tflops": "last, 2048"}
            kinds = [policy for policy in found if policy != "native"]
            for at, policy in enumerate(kinds):
                axes.bar([place + at * 0.16 for place in range(len(names))], [found[policy][name] / found["native"][name] for name in names], 0.16, label=policy)
            axes.set_yscale("log")
            axes.axhline(0.95, color="#aa3344", linestyle="--", linewidth=1)
            axes.set_xticks([place + 0.3 for place in range(len(names))], names.values())
            axes.set_ylabel("share of native")
            axes.set_ylim(top=8)
            axes.legend(fontsize=6, ncols=3, loc="upper left")
        save("policies", "A full pool, donors behind the host link", draw)
    if found := runs.last("offload"):
        def draw(axes):
            names = {"prefill_tokens_per_s": "prompt", "decode_tokens_per_s": "decode"}
            ways = [way for way in WAYS if way in found]
            for at, way in enumerate(ways):
                axes.bar([place + at * 0.2 for place in range(2)], [found[way][name] for name in names], 0.2, label=WAYS[way])
            axes.set_yscale("log")
            axes.set_xticks([0.3, 1.3], names.values())
            axes.set_ylabel("tokens/s")
            axes.legend(fontsize=7)
        save("offload", "A model twice as large as the primary", draw)
    if runs.having("spill", "fits", "gemm"):
        def draw(axes):
            spill, fits, gemm = runs.last("spill"), runs.last("fits"), runs.last("gemm")
            bars = {f"{words} ÷ mapped": spill["pooled"][name] / spill["mapped"][name] for name, words in (("read_gb_per_s", "read"), ("write_gb_per_s", "write"), ("copy_gb_per_s", "copy"))}
            bars["training that fits"] = fits["pooled"]["train_tokens_per_s"] / fits["bare"]["train_tokens_per_s"]
            bars |= {f"product {batch}, {which}": gemm["pooled"][f"{which}_{batch}_tflops"] / gemm["bare"][f"{which}_{batch}_tflops"] for which in ("first", "last") for batch in (512, 2048)}
            axes.barh(list(bars), list(bars.values()), color="#4477aa")
            axes.axvline(0.95, color="#aa3344", linestyle="--", linewidth=1, label="0.95")
            axes.set_xlim(0, 1.15)
            axes.invert_yaxis()
            axes.legend(fontsize=7, loc="lower left")
        save("ratios", "Pooled ÷ bare (one card, no link crossed)", draw)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+", type=pathlib.Path)
    parser.add_argument("--docs", default=pathlib.Path("docs"), type=pathlib.Path)
    chosen = parser.parse_args()
    runs = Runs([json.loads(path.read_text()) for path in chosen.results])
    folder = chosen.docs / "plots"
    folder.mkdir(exist_ok=True)
    plots(runs, folder)
    page = chosen.docs / "benchmarks.md"
    before, rest = page.read_text().split(BEGIN, 1)
    page.write_text(f"{before}{BEGIN}\n{document(runs)}\n\n{END}{rest.split(END, 1)[1]}")


if __name__ == "__main__":
    main()
