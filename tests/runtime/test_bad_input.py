"""What a user gets wrong is one line on stderr that names the thing and the mend, and exit status 2."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch

from tests.runtime.commandline import CommandLine, subprocess_run, write_prompts
from tests.runtime.prompts import mixed
from tests.runtime.serving import serve

if TYPE_CHECKING:
    from pathlib import Path

RUN = ("run", "--device", "simulated")

FLAGS: dict[str, tuple[tuple[object, ...], tuple[str, ...]]] = {
    "model": (("--model", "./nowhere"), ("'./nowhere'", "isn't there", "give a directory")),
    "no_config": (("--model", "."), ("'.'", "has no config.json", "give a directory")),
    "prompts": (("--prompts", "nowhere.txt"), ("nowhere.txt", "isn't there", "give a text file")),
    "folder": (("--prompts", "."), ("prompt file .", "can't be read")),
    "new_tokens": (("--max-new-tokens", 0), ("--max-new-tokens 0", "give 1 or more")),
    "temperature": (("--temperature", -1), ("--temperature -1", "give 0 (greedy) or more")),
    "infinite": (("--temperature", "inf"), ("--temperature inf", "give 0 (greedy) or more")),
    "top_p": (("--top-p", 0), ("--top-p 0", "above 0, up to 1")),
    "stop": (("--stop", ""), ("--stop ''", "an empty text")),
    "attention": (("--attention", "nonsense"), ("--attention nonsense", "known are native, trtllm_mha")),
    "max_running": (("--max-running", 0), ("--max-running 0", "give 1 or more")),
    "chunk": (("--chunk", 0), ("--chunk 0", "give 1 or more")),
    "no_page": (("--kv-tokens", 15), ("--kv-tokens 15", "at least one page, 16 tokens")),
    "small_pool": (("--kv-tokens", 16), ("KV", "the pool holds 16", "raise --kv-tokens")),
    "window": (("--sliding-window", 0), ("--sliding-window 0", "give 1 or more")),
    "context": (("--context-length", 513), ("--context-length 513", "2 to 512")),
    "short_context": (("--context-length", 8), ("the context takes 8", "must be left to generate")),
    "costs": (("--costs", "nowhere.json"), ("nowhere.json", "can't be read")),
    "output": (("--output", "nowhere/out.jsonl"), ("nowhere/out.jsonl", "can't be written", "a folder that exists")),
    "report": (("--json", "nowhere/out.json"), ("nowhere/out.json", "can't be written", "a folder that exists")),
    "output_folder": (("--output", "."), (". can't be written", "name a file")),
}

COSTS = {
    '{"kernels": {"layer": -1}}': ("kernels.layer is -1", "can't be negative"),
    '{"host": {"barrier": -0.5}}': ("host.barrier is -0.5", "can't be negative"),
    '{"kernels": {"laier": 1}}': ("kernels.laier", "no kernel of that name", "did you mean layer"),
    '{"kernel": {}}': ("unknown key 'kernel'", '"kernels"'),
    '{"kernels": {"layer": "fast"}}': ('kernels.layer is "fast"', "write a number"),
    "not JSON": ("not JSON",),
}


@pytest.mark.parametrize("name", FLAGS)
def test_a_bad_option_is_one_line(name: str, cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(cli.folder)
    flags, words = FLAGS[name]
    line = cli(*RUN, *flags).mistake()
    assert [word for word in words if word not in line] == []


@pytest.mark.parametrize("name", ["model", "new_tokens", "small_pool"])
def test_a_bad_option_is_one_line_of_a_real_process(name: str) -> None:
    flags, words = FLAGS[name]
    line = subprocess_run(*RUN, *flags).mistake()
    assert [word for word in words if word not in line] == []


def test_a_hub_name_that_nobody_has_is_one_line_of_a_real_process() -> None:
    line = subprocess_run(*RUN, "--model", "nobody/has-this-one").mistake()
    assert "'nobody/has-this-one' can't be read" in line
    assert "give a directory or a hub name that exists" in line


@pytest.mark.parametrize("text", COSTS)
def test_a_bad_cost_table_is_one_line(text: str, cli: CommandLine) -> None:
    path = cli.folder / "costs.json"
    path.write_text(text, encoding="utf-8")
    line = cli(*RUN, "--costs", path).mistake()
    assert str(path) in line
    assert [word for word in COSTS[text] if word not in line] == []


@pytest.mark.parametrize("content", ["", "\n  \n"])
def test_an_empty_prompt_file_is_one_line(content: str, cli: CommandLine) -> None:
    path = cli.folder / "prompts.txt"
    path.write_text(content, encoding="utf-8")
    line = cli(*RUN, "--prompts", path).mistake()
    assert f"{path} is empty" in line
    assert "write one prompt a line" in line


def test_a_prompt_file_that_is_no_text_is_one_line(cli: CommandLine) -> None:
    path = cli.folder / "prompts.txt"
    path.write_bytes(b"\xff\xfe\x00")
    assert f"{path} can't be read as UTF-8" in cli(*RUN, "--prompts", path).mistake()


def test_a_prompt_longer_than_the_context_is_one_line(cli: CommandLine) -> None:
    path = write_prompts(cli.folder / "prompts.jsonl", [{"input_ids": [1] * 512}])
    line = cli(*RUN, "--prompts", path).mistake()
    assert "request 0: the prompt has 512 tokens; the context takes 512" in line


@pytest.mark.parametrize(
    "name",
    ["SGLANG_FORCE_COARSE_WAR_BARRIER", "SGLANG_ENABLE_WAR_BARRIER", "SGLANG_ENABLE_PREFILL_WAR_READ_DONE"],
)
def test_a_switch_that_is_no_boolean_is_one_line(name: str, cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "maybe")
    line = cli(*RUN).mistake()
    assert f"{name}='maybe'" in line
    assert "write one of 1, true" in line


def test_a_switch_that_is_no_boolean_is_one_line_of_a_real_process() -> None:
    line = subprocess_run(*RUN, env={"SGLANG_FORCE_COARSE_WAR_BARRIER": "maybe"}).mistake()
    assert "SGLANG_FORCE_COARSE_WAR_BARRIER='maybe'" in line


def test_cuda_without_a_gpu_is_one_line(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    line = cli("run", "--device", "cuda").mistake()
    assert "--device cuda" in line
    assert "use --device simulated" in line


@pytest.mark.parametrize("flags", [("--device", "tpu"), ("--fence", "none"), ("--graph", "half"), ("--requests", "0")])
def test_a_value_that_an_option_does_not_know_is_named(flags: tuple[str, str], cli: CommandLine) -> None:
    ended = cli("run", *flags)
    assert ended.code == 2
    assert flags[0] in ended.err
    assert "Traceback" not in ended.err


BAD_LINES: dict[str, tuple[Any, str]] = {
    "empty": ({"input_ids": []}, "the prompt has no tokens"),
    "too_long": ({"input_ids": [1] * 600}, "the prompt has 600 tokens; the context takes 512"),
    "vocabulary": ({"input_ids": [999]}, "token 999 of the prompt is outside the vocabulary, 0 to 259"),
    "negative": ({"input_ids": [-1]}, "token -1 of the prompt is outside the vocabulary"),
    "both": ({"input_ids": [1], "prompt": "one"}, "give either prompt or input_ids"),
    "neither": ({"id": "x"}, "give either prompt or input_ids"),
    "unknown": ({"prompt": "one", "max_tokens": 3}, "unknown key 'max_tokens'"),
    "number": ({"prompt": 5}, "prompt must be a string"),
    "floats": ({"input_ids": [1.5]}, "input_ids must be a list of integers"),
    "zero": ({"prompt": "one", "max_new_tokens": 0}, "max_new_tokens must be an integer, at least 1"),
    "cold": ({"prompt": "one", "temperature": -1}, "temperature must be a number, at least 0"),
    "broken": ("{", "not JSON"),
    "list": ("[1, 2]", "not a JSON object"),
    "stop": ({"prompt": "one", "stop": [""]}, "stop must be a text, or a list of them"),
    "pool": ({"input_ids": [1] * 300}, "the pool holds 320 (raise --kv-tokens"),
}


@pytest.mark.parametrize("name", BAD_LINES)
def test_a_bad_prompt_fails_alone(name: str, cli: CommandLine) -> None:
    line, words = BAD_LINES[name]
    good = [prompt for prompt in mixed(5, 8) if len(prompt.ids) + prompt.params.max_new_tokens <= 320]
    path = write_prompts(cli.folder / "prompts.jsonl", [*good[:2], line, *good[2:]])
    ran = cli.run("--prompts", path, "--kv-tokens", 320)
    assert ran.code == 0
    failed = ran.lines.pop(2)
    assert (failed["finish_reason"], failed["output_ids"]) == ("error", [])
    assert words in failed["error"]
    assert words in ran.err
    assert "the others are served" in ran.err
    assert ran.outputs == serve(good, kv_tokens=320).outputs


def test_where_every_prompt_is_bad_the_output_still_says_why(cli: CommandLine) -> None:
    path, output = cli.folder / "prompts.jsonl", cli.folder / "output.jsonl"
    write_prompts(path, [{"input_ids": []}, "{"])
    line = cli(*RUN, "--prompts", path, "--output", output).mistake()
    assert "request 0: the prompt has no tokens (and 1 more like it); nothing is left to serve" in line
    lines = [json.loads(one) for one in output.read_text(encoding="utf-8").splitlines()]
    assert [one["finish_reason"] for one in lines] == ["error", "error"]


def test_a_file_that_was_there_is_kept_where_nothing_is_served(cli: CommandLine) -> None:
    report: Path = cli.folder / "report.json"
    report.write_text("yesterday's\n", encoding="utf-8")
    cli(*RUN, "--json", report, "--attention", "nonsense").mistake()
    assert report.read_text(encoding="utf-8") == "yesterday's\n"
