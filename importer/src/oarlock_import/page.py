"""docs/simpletuner.md: what becomes of each option, from the tables that decide it.

`python -m oarlock_import.page` writes the page; with --check it only compares.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from oarlock_api.generated import REPOSITORY, write_or_check
from oarlock_import.importing import OPTIONS
from oarlock_import.optimizer import ALGORITHMS
from oarlock_import.report import shown
from oarlock_import.rows import Fate
from oarlock_import.simpletuner import VERSION
from oarlock_import.tables.dataset import CONDITIONING, DATASET, EMBEDS, PARQUET, SEEN, VIDEO, WEBHOOK
from oarlock_import.tables.launch import ACCELERATE, DEEPSPEED, DYNAMO
from oarlock_import.tables.lycoris import LYCORIS, PRESET

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from oarlock_import.rows import Row

PAGE: Path = REPOSITORY / "docs/simpletuner.md"
_INTRODUCTION = """\
<!-- Made from the tables in importer/src/oarlock_import by `python -m oarlock_import.page`: change
those, not this page. -->

# Coming from SimpleTuner

`oarlock-trainer import-simpletuner` turns a configuration of SimpleTuner for FLUX.1, FLUX.2, Z-Image, Stable
Diffusion 3.5, Qwen-Image or Wan 2.1 into a TrainingJob that trains the same way. To run SimpleTuner itself under Oarlock
instead, see [bring your own trainer](bring-your-own-trainer.md).

```console title="needs a cluster and your configuration"
$ oarlock-trainer import-simpletuner config/config.json -o job.yaml
$ oarlock-trainer plan -f job.yaml --path /output=/home/me/SimpleTuner
$ kubectl apply -f job.yaml
```
The command is in `.venv/bin` of a checkout after `make setup`, and [in the trainer's image](first-job.md#4-the-job).
Run it where SimpleTuner's folder is: the report ends with the `plan` to run next, which finds pictures and model there.
Between `plan` and `apply` do what the report lists under "to do": the cluster needs [the operator](install.md), a
claim with the pictures and the model on it, and Secrets. `kubectl apply` is what `simpletuner train` was: it starts all
nodes.

The importer reads config.json, config.toml, config.env or a script of such variables, and the files that these name:
multidatabackend.json, accelerate's YAML, DeepSpeed's JSON, lycoris_config.json, webhooks.json, lists of caption filters.
They are looked for beside the configuration, in three folders above it and in the one that the command is called in;
`config/examples/...` is SimpleTuner's own folder of examples. What lies elsewhere is passed with `--datasets`,
`--accelerate` or `--webhooks`. A config.env beside config.json says how SimpleTuner is launched, and counts; so does the
multidatabackend.json there where none is named. accelerate's file is also found where accelerate
itself looks, `$HF_HOME/accelerate/default_config.yaml` (`~/.cache/huggingface/...`); where there is none, the report
says so, and what size the job has. The manifest goes to standard output or `-o`, the report to standard error:

| list | holds |
| --- | --- |
| refused | why the job would not do what an option asks for, and what to do instead |
| mapped | the field that an option became; `differs` says where the job is not exactly the same |
| ignored | why an option changes nothing in the job |
| to do | what the cluster needs first: claim, mounts, Secrets; and, by the [planner](planner.md), the memory of a GPU |

If anything is refused, no manifest is written and the exit code is 85. Each refusal has its file and its line, and
what to write instead. Every option of SimpleTuner {version} is known: it is taken, ignored or refused, the last two
with the reason, and ignored where it stands at its default. An option that is not known is refused by its name: a
misspelled one is never lost in silence. So is a value of config.env that a shell's command makes, as `$(pwd)` does,
and a line such as `if`: no shell is run here. Lines that go on, remarks, other variables and sums, as in
`$((STEPS/10))`, are read as a shell does. A variable that SimpleTuner itself does not read, such as `MODEL_FLAVOUR`, is
taken with `differs`.

## What to know
- **Defaults are SimpleTuner's.** Where an option is absent, SimpleTuner's default is written into the job if it
  changes the numbers: batch size 4, learning rate 4e-7, gradients clipped by value at 2, 1 epoch, flavor Krea
  (flux2: Klein 9B, z_image: Turbo, sd3: Medium, qwen_image: Qwen-Image-2512, wan: 1.3B) unless the model's name tells
  another one, crops at random, private repositories. A seed is the exception: SimpleTuner draws one for each run, also for
  0 and -1, the job gets 42. Without `report_to` there is no tracker.
- **What SimpleTuner rewrites** is imported as it runs: `lr_scheduler: constant` with `lr_warmup_steps` has a warm-up, FLUX.2
  is told a guidance of 1, sizes of pictures below 128 are megapixels. A data set with `probability: 0` is left out, and
  `{{model_family}}`, `{{output_dir}}` and `{{id}}` are filled in. Without `crop`, what a bucket has no room for is cut where
  `crop_style` says.
- **Memory.** SimpleTuner keeps weights and moments in bfloat16 with some optimizers, an imported job keeps float32 and
  spreads it over its GPUs. So a full-rank run of one process becomes a job that does not fit: the report says how much
  is missing and what makes it fit, such as [AdamWBF16](engine.md#adamwbf16) on one GPU. It is computed for H100s;
  `plan` also looks at the data, and takes other GPUs (`--gpu`). Its [exit code](planner.md) is 85 where the job does
  not fit. What only saves memory (`ramtorch`, `enable_group_offload`, `musubi_blocks_to_swap`, `context_parallel_size`)
  is left out, with `differs`.
- **DeepSpeed.** With it SimpleTuner ignores its own optimizer, schedule and clipping. The job has what really
  ran: AdamW with the `adam_*` options and WarmupLR, unless DeepSpeed's configuration names others. Its warm-up rises
  along a logarithm, the job's along a line.
- **Which setting counts** where several files have it: flags for `accelerate launch` before accelerate's YAML, and that
  before SimpleTuner's own options.
- **The model.** A `pretrained_model_name_or_path` such as `black-forest-labs/FLUX.1-dev` is a repository of the hub,
  unless there is such a folder on this machine. A gated one, as this is, needs a token: the report says how.
  A single `.safetensors` file is no model yet: [`oarlock-trainer import-single-file`](checkpoints.md#a-model-in-one-file)
  makes a folder of it and the model that it was made from.
- **Other families.** Adapters stand where SimpleTuner puts them in each: in Z-Image (`model_family` z_image), Wan
  (wan), Stable Diffusion 3.5 (sd3) and Qwen-Image (`qwen_image`) beside attention, in the last two beside that of the
  image's tokens alone, in FLUX.2 beside five kinds of layers; options of FLUX.1, whose names begin with `flux_`,
  change nothing there. Stable Diffusion 3.5 gets 256 tokens of T5, as in diffusers' pipeline; SimpleTuner gives it
  154. Of Qwen-Image's flavours that edit pictures `edit-v1` is taken, of Wan's those that draw of texts alone. A
  video's latents are the mean that the VAE says, as in diffusers' pipelines.
- **Output.** `output_dir` becomes `output.directory`, its last part alone, on the claim that `--claim` names. The job
  has the same name, or `--name`.
- **Paths** stay as they are; what lies outside the output has to be mounted with `pod.volumes` and
  `pod.volumeMounts`. Relative ones begin at `--working-directory` in pods, `/output` by default: so it is enough to
  copy the folders that they name from SimpleTuner's folder onto the claim.
- **Secrets** are never written down: keys of S3, addresses and tokens of webhooks, tokens of the hub and of trackers
  become references, and the report has the `kubectl create secret` that makes each Secret, without values. Entries
  with the same service and keys share one connection.
- **Caches and checkpoints** of SimpleTuner are not read: latents and text are encoded again, into the folders that the
  `cache_dir` options name, and a run begins at step 0. To go on from a full-rank checkpoint, make it a diffusers
  directory and name that as the model.
- **The GPU circuit breaker.** SimpleTuner ends training for heat, throttling and power as for a broken GPU. A job
  saves at once, tells it (condition Degraded, a webhook of level Warning) and goes on; only what the driver calls
  broken ends the gang ([why](decisions/0010-what-speaks-against-a-gpu.md)). One [rule](gpu-faults.md#rules-of-your-own)
  has SimpleTuner's strictness: `{{name: gpu-circuit-breaker, when: {{verdict: Hold, probes: [thermalMargin,
  thermalSlowdown, powerBrake]}}, action: AvoidNode}}`, or `action: Fail` where the job is to end. It is written where
  the `log_level` of a webhook is `error` or `critical`, which would not hear of a warning.
- **Small buckets.** SimpleTuner drops buckets below one batch, and stops at those below one optimizer step; a job
  stops at both and lists them, or repeats samples with `allow_dataset_oversubscription`.
- **Weight decay.** Without DeepSpeed SimpleTuner leaves biases, norms and embeddings out. Such a job gets
  `weightDecayOn: Matrices`, which leaves out the first two.
"""


def page() -> str:
    """The page as Markdown."""
    files = {
        "Options": OPTIONS.values(),
        "Entries of multidatabackend.json": DATASET,
        "Their block `parquet`": PARQUET,
        "Their block `video`": VIDEO,
        "Entries for masks and references": CONDITIONING,
        "Entries for text and image embeddings": EMBEDS,
        "Entries for conditioning image embeddings": SEEN,
        "webhooks.json": WEBHOOK,
        "accelerate's YAML": (*ACCELERATE, *DYNAMO),
        "DeepSpeed's configuration": DEEPSPEED,
        "lycoris_config.json": LYCORIS,
        "Its block `apply_preset`": PRESET,
    }
    return "\n".join(
        [
            _INTRODUCTION.format(version=VERSION),
            *_optimizers(),
            *(line for name, rows in files.items() for line in _file(name, rows)),
        ]
    )


def _optimizers() -> Iterator[str]:
    yield "## Optimizers"
    yield ""
    yield "Without DeepSpeed each has defaults of its own. Those that are not here are refused."
    yield ""
    yield "| SimpleTuner | job | betas | weight decay | eps |"
    yield "| --- | --- | --- | --- | --- |"
    for name, algorithm in ALGORITHMS.items():
        first, second = algorithm.betas
        eps = "" if algorithm.eps is None else f"{algorithm.eps:g}"
        yield f"| `{name}` | {algorithm.name} | {first}, {second} | {algorithm.weight_decay} | {eps} |"
    yield ""


def _file(name: str, rows: Iterable[Row]) -> Iterator[str]:
    """One section: a table of what is mapped, and one line for each reason."""
    distinct = list({row.key: row for row in rows}.values())
    yield f"## {name}"
    yield ""
    yield "| key | becomes | where it is absent |"
    yield "| --- | --- | --- |"
    for row in distinct:
        if row.fate is Fate.MAPPED:
            yield f"| {_names(row)} | {row.to} | {'' if row.default is None else f'`{shown(row.default)}`'} |"
    yield ""
    for fate in (Fate.REFUSED, Fate.IGNORED):
        reasons: dict[str, list[Row]] = {}
        for row in distinct:
            if row.fate is fate:
                reasons.setdefault(row.why, []).append(row)
        if reasons:
            yield f"{fate.capitalize()}:"
            yield from (f"- {', '.join(_names(row) for row in group)}: {why}" for why, group in reasons.items())
            yield ""


def _names(row: Row) -> str:
    """The key with its older names, and with the values that ask for nothing where it is refused otherwise."""
    asks = [shown(value) for value in row.unless if value not in (False, {}, [])]
    other = f" (other than {', '.join(asks)})" if asks else ""
    return " / ".join(f"`{name}`" for name in (row.key, *row.aliases)) + other


def main(arguments: list[str] | None = None) -> int:
    """Write or check the committed page."""
    return write_or_check(module="oarlock_import.page", path=PAGE, content=page(), arguments=arguments)


if __name__ == "__main__":
    sys.exit(main())
