"""What an imported recipe looks like, and what it leaves out."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from precision_plan.api import compile, import_script
from precision_plan.compose import Composer, build_plan
from precision_plan.importers.job_plan import job_of
from precision_plan.importers.jobs import Command
from precision_plan.importers.recipe_data import recipe_data
from precision_plan.importers.recipe_text import recipe_text
from precision_plan.importers.texts import Source, literal
from precision_plan.plan import Origin
from precision_plan.plan.imported import Imported
from precision_plan.plan.leftover import Leftover
from tests.importers.round_trip import sections

FIXTURES = Path(__file__).parents[1] / "fixtures" / "import"
CONF = Path(__file__).parents[2] / "conf"


def imported(tmp_path: Path, text: str, **options: object) -> Imported:
    script = tmp_path / "run.sh"
    script.write_text(text, encoding="utf-8")
    return import_script(script, conf_dir=CONF, **options)  # type: ignore[arg-type]


START = "python pretrain_gpt.py --bf16 --micro-batch-size 1 --num-layers 2"


def test_the_whole_text(tmp_path: Path) -> None:
    found = imported(
        tmp_path,
        "# precision-plan: gpu=h100 gpus_per_node=8 megatron_core=0.16.1\n"
        "export NVTE_DEBUG=1 HF_TOKEN=hf_0123456789 WANDB_API_KEY=$KEY\n"
        "BASE=${BASE:-/data}\n"
        "python3 pretrain_gpt.py --bf16 --micro-batch-size 2 \\\n"
        "  --fp8-format $FORMAT --save ${RUNS}/a --load $BASE/b \\\n"
        "  --train-iters 10 --eval-iters=1 oops\n",
    )
    assert found.text == (
        "# @package _global_\n"
        "#\n"
        "# The launch at run.sh:4; nothing of it was run.\n"
        "defaults:\n"
        "  - override /hardware: h100  # run.sh:1\n"
        "  - _self_\n"
        "\n"
        "recipe:\n"
        "  title: Imported from run.sh\n"
        '  source: ["run.sh:4"]\n'
        "  maturity: experimental\n"
        "\n"
        "software:\n"
        "  framework: megatron-lm\n"
        "  megatron_core: 0.16.1  # run.sh:1\n"
        "\n"
        "training:\n"
        "  bf16: true  # run.sh:4\n"
        "  micro_batch_size: 2  # run.sh:4\n"
        "  # fp8_format: $FORMAT (run.sh:5): not known before the launch\n"
        "\n"
        "checkpoint:\n"
        "  load: /data/b  # run.sh:5\n"
        "  save: '\\${RUNS}/a'  # run.sh:5, not known before the launch\n"
        "\n"
        "env:\n"
        "  all:\n"
        '    NVTE_DEBUG: "1"  # run.sh:2\n'
        "    WANDB_API_KEY: $KEY  # run.sh:2, not known before the launch\n"
        "  # all.HF_TOKEN: (run.sh:2): a secret is not written down\n"
        "\n"
        "launch:\n"
        "  entrypoint: pretrain_gpt.py  # run.sh:4\n"
        "  extra_args:\n"
        "    train_iters: 10  # run.sh:6\n"
        "    eval_iters: 1  # run.sh:6\n"
        "\n"
        "# Left over: not understood, or not known before the launch.\n"
        "#   run.sh:2: unset\n"
        "#     KEY\n"
        "#     (nothing in the script sets KEY)\n"
        "#   run.sh:5: unset\n"
        "#     FORMAT\n"
        "#     (nothing in the script sets FORMAT)\n"
        "#   run.sh:5: unset\n"
        "#     RUNS\n"
        "#     (nothing in the script sets RUNS)\n"
        "#   run.sh:6: word\n"
        "#     oops\n"
        "#     (belongs to no option)\n"
    ).replace('["run.sh:4"]', "[run.sh:4]")
    assert [(gap.field, gap.text) for gap in found.gaps] == [
        ("training.fp8_format", "$FORMAT"), ("env.all.HF_TOKEN", ""),
    ]  # fmt: skip


def test_a_recipe_composes_to_what_the_launch_says(tmp_path: Path) -> None:
    found = imported(tmp_path, f"{START} --save ${{RUNS}}/a --load '$(x) ${{a.b}} \\${{c}}'\n")
    recipe = tmp_path / "r.yaml"
    recipe.write_text(found.text, encoding="utf-8")
    compiled = compile(recipe, conf_dir=CONF)
    assert compiled.plan.checkpoint.save == "${RUNS}/a"
    assert compiled.plan.checkpoint.load == "$(x) ${a.b} \\${c}"
    assert sections(compiled.plan.settings()) == sections(found.data)


def test_secrets_are_nowhere(tmp_path: Path) -> None:
    found = imported(
        tmp_path,
        "export HF_TOKEN=hf_secretvalue\n"
        f"{START} --wandb-key abcdef123 --data-path x hf_secretvalue\n"
        'echo "$HF_TOKEN" | tr a b > file-hf_secretvalue\n',
    )
    assert "hf_secretvalue" not in found.text
    assert "abcdef123" not in found.text
    assert "HF_TOKEN: (run.sh:1): a secret is not written down" in found.text


def test_a_framework_that_is_not_known(tmp_path: Path) -> None:
    found = imported(
        tmp_path,
        "ray job submit -- python3 train.py --rollout-batch-size 4 --num-rollout 2 --bf16\n",
    )
    (gap,) = found.gaps
    assert gap.field == "software.framework"
    assert "vime" in gap.text
    assert f"# framework: {gap.text}: --target framework=NAME says it" in found.text
    assert "framework" not in found.data.get("software", {})


def test_branches_and_other_launches(tmp_path: Path) -> None:
    script = (
        "if [ $GPU = b200 ]; then R=mxfp8; else R=blockwise; fi\n"
        f"{START} --fp8-format e4m3 --fp8-recipe $R\n"
        "vllm serve model --kv-cache-dtype fp8\n"
    )
    first = imported(tmp_path, script)
    assert first.data["training"]["fp8_recipe"] == "mxfp8"
    assert "# Where [ $GPU = b200 ]\n# The script has 2 other ways to a launch;" in first.text
    other = imported(tmp_path, script, branches=["not: [ $GPU = b200 ]"])
    assert other.data["training"]["fp8_recipe"] == "blockwise"
    part = imported(tmp_path, script, branches=["not: b200"])
    assert part.text == other.text
    served = imported(tmp_path, script, launch=2)
    assert served.data["software"]["framework"] == "vllm"
    assert [way.launch for way in served.others] == [1, 1]
    with pytest.raises(ValueError, match="there is no launch 3: the script has launches 1 to 2"):
        imported(tmp_path, script, launch=3)
    with pytest.raises(ValueError, match="no condition before a launch has h200 in it"):
        imported(tmp_path, script, branches=["h200"])
    with pytest.raises(ValueError, match="no way to a launch goes where b200 and not: GPU"):
        imported(tmp_path, script, branches=["b200", "not: GPU"])


def test_nothing_to_import(tmp_path: Path) -> None:
    assert imported(tmp_path, "echo hello\n").plan is None
    broken = imported(tmp_path, f"{START} --save 'open\n")
    assert [found.id for found in broken.diagnostics] == ["PP942"]
    missing = import_script(tmp_path / "none.sh")
    assert [found.id for found in missing.diagnostics] == ["PP010"]


WORDS = st.text(
    st.characters(codec="utf-8", exclude_characters="\0", exclude_categories=["Cs"]), max_size=12
) | st.text("${}\\'\"#:- ,[]abc", max_size=12)


@settings(max_examples=150, deadline=None)
@given(st.lists(WORDS, max_size=4), st.dictionaries(st.sampled_from("ABC"), WORDS), WORDS)
@example([], {"A": "="}, "<<")
def test_any_words_come_back(extra: list[str], variables: dict[str, str], path: str) -> None:
    source = Source("run.sh", b"")
    words = ["python", "pretrain_gpt.py", "--bf16", "--save", path, "--none-such", *extra]
    env = {name: literal(value, source) for name, value in variables.items()}
    job = job_of(Command(tuple(literal(word, source) for word in words), env))
    assert job is not None
    left = [Leftover("word", word, Origin("run.sh", 1, 1)) for word in extra]
    text = recipe_text(job, "run.sh", leftovers=left)
    here = str(Path(__file__).resolve())
    composer = Composer(CONF, texts={here: text})
    composition = composer.compose(here)
    assert [found.message for found in composition.diagnostics] == []
    composed = build_plan(composition).plan.settings()
    assert sections(composed) == sections(recipe_data(job, "run.sh"))
