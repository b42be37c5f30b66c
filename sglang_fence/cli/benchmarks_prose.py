"""What ``docs/benchmarks.md`` says beside its figures."""

from __future__ import annotations

HEAD = """\
# Benchmarks

<!-- Made by `sglang-fence docs benchmarks` from the files in docs/benchmarks/. Change sglang_fence/cli/benchmarks_*.py
or make the files anew. -->

How all of them measure: every variant runs once a round, in an order that turns from round to round, so that a drift of
the machine hits all alike; one round more is run first and thrown away. Ratios are taken within each round. Each table
has a pair of variants that are the same: what those two differ by is noise, and what differs by less means nothing.

What observing costs is said in [observing](observing.md).
"""

FENCE = """\
## What the fence gives back

```bash
sglang-fence bench fence --device cuda --json docs/benchmarks/fence.json
```

**What runs.** The overlap scheduler's loop, with the runtime's own graph, marker, publisher, mailbox and barrier. The
kernels, and the host's preparation of a step, are replaced by ones that spin for a given time. A tiny model won't do
here: on a fast GPU it is bound by the host, and then no fence costs anything.

| a step has | on | how long |
| --- | --- | --- |
| preparation by the host, which spins | host | the column *host ms*; the loop's own calls come on top |
| preparation, one kernel | schedule stream | the column *schedule µs*, or what the heading says |
| metadata preparation, up to the end of the shared reads | forward stream | 10 µs |
| the model | forward stream | the rest of *decode ms* |
| sampling, and copying the tokens | forward stream, behind the replay | 10 µs |

**Variants.** *Off*: no wait at all, which is unsafe with real data. *Coarse*: the schedule stream waits for all that
the forward stream has. *POST*, *IN*, *PRE*: a fine fence whose reads end with the replay, at the marker inside the
graph, or before the replay. POST gives back what comes behind the replay and no more.

**The upper bound, *ideal*.** An ideal fence holds the schedule stream until the running step's shared reads end, costs
nothing and needs no marker. Let D be the forward stream's part of a step and S the schedule stream's, both measured
alone, back to back, on the device's clock (D in a graph without a marker); H the host's time a step, measured with the
fence off, blocking left out; h its preparation, and r the reads, as they were asked for. A step can't take less than

    max(D, H, (h + S + D) / 2, r + S)

One step after the other on the forward stream, and on the host; two steps in flight, since the host waits for the step
before the one that it has launched; and reads before preparation.

**What limits it.**

* A coarse step takes D + S and the two waits across streams between them, of some µs each: the preparation begins when
  the forward has ended, and the next forward behind it. So a fine fence gives back about S/D at the most, the more the
  shorter the decode and the longer the schedule stream's work.
* Where the host needs longer than that, the schedule stream is done in time whatever the fence, and nothing is given
  back. In between it is a part.
* 40 µs on the schedule stream stand for about ten small kernels. This runtime launches far fewer, of a few µs in all.
  The first table says what other amounts come to.
* A marker is a node of the graph and takes the device some µs; *off* and *coarse* carry it too, as in the runtime.
  *PRE* and *POST* have none, so *PRE* may exceed *off*.
"""

RUNTIME_PROSE = """\
## How fast the runtime decodes

```bash
sglang-fence bench runtime --device cuda --json docs/benchmarks/runtime.json
```

**What runs.** One randomly initialised Llama, greedy, with prompts and outputs of one length, so that a batch stays
whole. *Runtime*: this runtime as it is (overlap, full graphs, fine fence), twice; with a *coarse fence*; as a *plain
loop*, which prepares a step when the last one's results are there. *Generate*: Transformers' `generate` with a static
cache, compilation off, attention `sdpa`. The context is as long as the static cache.

**Prefill** is left out of the decode step, for all alike: a whole run less a run that ends with its first token, by the
number of steps between. It is included in the tokens a second. Tokens reach the host in both: step by step in the
runtime, at the end in `generate`.

**Tokens are checked first.** In float32, and in the data type that is timed, each token of the runtime must be the best
of Transformers' plain forward behind the same tokens, but for ties: it may fall short by so many standard deviations of
the logits. A random token falls short by about four. Without ties the tokens are equal.

**What limits it.** `generate` launches each kernel from Python, so at small batches it is bound by the host; a graph
isn't. The runtime's attention gathers pages with PyTorch's operators, which a fused paged kernel would beat at long
contexts: this is a runtime for the fence, not for records.
"""

TAIL = """\
## Making this page

```bash
sglang-fence docs benchmarks > docs/benchmarks.md
sglang-fence docs benchmarks-plot > docs/benchmarks/fence.svg
```
"""
