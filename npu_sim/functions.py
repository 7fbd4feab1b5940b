"""Commands that need several packages, as functions that return answers.

``npu_sim.__init__`` lists all public functions with their modules.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, overload

from npu_sim.cores import Profile
from npu_sim.framework.target import Limits
from npu_sim.language import Argument
from npu_sim.status import UsageError, without_internal_frames

if TYPE_CHECKING:
    from npu_sim.plans.model import Workspace
    from npu_sim.questions.preflight import Matrix
    from npu_sim.sweeps.timelines import TimelineComparison
    from npu_sim.timelines.model import Timeline

Names = str | Sequence[str] | None
"""Names, also as one text separated by commas."""


@overload
def timeline(
    operator: str,
    *,
    product: str | Path | Profile | None = ...,
    soc: str | None = ...,
    release: str | None = ...,
    products: None = ...,
    socs: None = ...,
    vary: None = ...,
    deterministic: bool = ...,
    limits: Limits = ...,
    calibration: str | Path | None = ...,
    **arguments: Any,
) -> "Timeline": ...
@overload
def timeline(
    operator: str,
    *,
    product: str | Path | Profile | None = ...,
    soc: str | None = ...,
    release: str | None = ...,
    products: Names = ...,
    socs: Names = ...,
    vary: str | None = ...,
    deterministic: bool = ...,
    limits: Limits = ...,
    calibration: str | Path | None = ...,
    **arguments: Any,
) -> "Timeline | TimelineComparison": ...
@without_internal_frames
def timeline(
    operator: str,
    *,
    product: str | Path | Profile | None = None,
    soc: str | None = None,
    release: str | None = None,
    products: Names = None,
    socs: Names = None,
    vary: str | None = None,
    deterministic: bool = False,
    limits: Limits = "documented",
    calibration: str | Path | None = None,
    **arguments: Any,
) -> "Timeline | TimelineComparison":
    """Return the lower bound of the time of one call, and an estimate if one can be made.

    :func:`preflight` with ``timed=True`` does so for a file of calls.

    Parameters
    ----------
    products
        Products to compare: all, or names, also in one text with commas.
    socs
        SoCs to compare: all of the product, or names, also in one text with commas.
    vary
        Sizes to compare, such as dim=256,512,513 or dim=256..4096:*2.
    calibration
        Calibration of your device (clock and ceilings), written by npu-sim profile --calibrate.
    operator, product, soc, release, deterministic, limits, **arguments
        As for :func:`npu_sim.plan`.

    Returns
    -------
    Timeline or TimelineComparison
        The timeline of the call; with products, socs or vary the comparison, whose ``rows`` have
        name, profile, plan and timeline (or refusal) of every call.

    Raises
    ------
    UsageError
        For unknown names, and when product and products, or soc and socs, are both given.
    AclnnError
        With the product's status when the call, or each of those compared, is refused.
    """
    from npu_sim.sweeps.timelines import ComparedDevices, compared_timelines

    compared = compared_timelines(
        operator,
        arguments,
        ComparedDevices(product, soc, release, products, socs),
        vary=vary,
        calibration=calibration,
        deterministic=deterministic,
        limits=limits,
    )
    if products is None and socs is None and vary is None:
        (row,) = compared.timed
        found: Timeline = row.found
        return found
    return compared


@without_internal_frames
def workspace(operator: str, **call: Any) -> "Workspace":
    """Return the workspace of one call: kernels, areas with lifetimes and offsets, buckets.

    ``call`` has the target and the arguments as for :func:`npu_sim.plan`, and raises what it does.
    """
    from npu_sim.operators import plan

    return plan(operator, **call).workspace


@without_internal_frames
def preflight(
    calls: str | Path | Iterable[Mapping[str, Any]],
    *,
    products: Names = None,
    soc: Names = None,
    release: Names = None,
    product: Names = None,
    socs: Names = None,
    releases: bool | Names = False,
    fail_on: str = "refused",
    max_workspace: str | int | None = None,
    informational: Names = None,
    baseline: str | Path | None = None,
    timed: bool = False,
    whole: bool = False,
    progress: Callable[[str, float], None] | None = None,
) -> "Matrix":
    """Check calls on several products, SoCs and releases, without data.

    Parameters
    ----------
    calls
        File of calls, one JSON object a line, ``-`` for standard input; or the calls themselves,
        for instance a :class:`~npu_sim.torch.recording.Recording`.
    products
        all, names with commas, or profile files; for calls that name none.
    soc
        SoCs, with commas, which imply their products; all for every one.
    release
        Releases of the product's software, with commas; the default when left out.
    product, socs
        Other names of products and soc.
    releases
        Another name of release; True for all.
    fail_on
        Outcomes that are not accepted, separated by commas: refused, caveat, timing, unknown.
    max_workspace
        Largest workspace a call may need: bytes, or 256MiB, 2GiB.
    informational
        Products, with commas, whose findings are shown but do not change the exit code.
    baseline
        File of accepted findings; entries that are no longer found are named.
    timed
        Whether results include launches, lower bounds and estimates, and their sums.
    whole
        Whether results include complete plans.
    progress
        Called with the stage and the part of the file that is checked, 0 to 1.

    Raises
    ------
    UsageError
        For unknown names, for a file that cannot be read, and when no line is a call.
    """
    from npu_sim.questions.preflight import check_file, chosen_columns, policy_of, read_baseline
    from npu_sim.questions.varied_calls import one_spelling

    targets = chosen_columns(
        one_spelling("product", product, products),
        one_spelling("soc", soc, socs),
        one_spelling("release", release, releases),
    )
    policy = policy_of(fail_on, max_workspace, informational)
    accepted = {} if baseline is None else read_baseline(Path(baseline))
    check = partial(check_file, targets=targets, policy=policy, whole=whole, timed=timed)
    if isinstance(calls, str | Path):
        matrix = _check_path(check, calls, progress or (lambda stage, part: None))
    else:
        matrix = check(map(json.dumps, calls))
    matrix.baseline = accepted
    products_checked = {checked.product for _, _, checked in matrix.cells()}
    for name in sorted(policy.informational - products_checked):
        raise UsageError(
            "informational",
            "informational = {name}: no call is checked on it",
            "name it among the products, as in {products}",
            name=name,
            products=Argument("products", "A2,A3"),
        )
    return matrix


def _check_path(
    check: Callable[..., "Matrix"], calls: str | Path, progress: Callable[[str, float], None]
) -> "Matrix":
    """Check a file of calls, or standard input."""
    directory = Path(calls).parent if str(calls) != "-" else None
    try:
        with sys.stdin.buffer if str(calls) == "-" else Path(calls).open("rb") as file:
            return check(_reported(file, progress), directory=directory)
    except OSError as error:
        from npu_sim.files.reading import cannot_read

        hint = "a file of calls, one JSON object a line"
        raise cannot_read("calls", calls, error, hint) from None
    except UsageError as error:
        if error.argument != "calls":
            raise
        raise UsageError(
            "calls", "{calls}: {message}", error.hint, calls=calls, message=error.message
        ) from None


def _reported(file: IO[bytes], progress: Callable[[str, float], None]) -> Iterator[bytes]:
    """Yield the lines of a file, reporting the part that is read; a pipe has no size."""
    from npu_sim.files.reading import lines_of

    size, done = os.fstat(file.fileno()).st_size if file.seekable() else 0, 0
    for line in lines_of(file):
        yield line
        done += len(line)
        progress("checking calls", min(done / size, 1.0) if size else 0.0)


@without_internal_frames
def model(
    config: str | Path | Mapping[str, Any],
    *,
    batch: int = 1,
    sequence: int = 4096,
    dtype: str = "bf16",
    optimizer: str | None = None,
    inference: bool = False,
    deterministic: bool = False,
    products: Names = None,
    soc: Names = None,
    release: Names = None,
    product: Names = None,
    socs: Names = None,
    releases: bool | Names = False,
    out: str | Path | None = None,
    **sizes: Any,
) -> "Matrix":
    """Return the calls of a step of training of a model, with their times on every product.

    The model is built by the installed transformers on PyTorch's meta device: nothing is downloaded
    or computed. Its forward and backward pass are recorded and checked by :func:`preflight`.

    Parameters
    ----------
    config
        Configuration file of a model (``config.json``), its content, or a type such as ``"llama"``.
    batch
        Number of sequences.
    sequence
        Tokens of a sequence.
    dtype
        Dtype of weights and activations: bf16, fp16 or fp32.
    optimizer
        adamw: also the fused AdamW of every parameter, with a state of its dtype; none without it.
    inference
        The calls of an inference engine instead: a prefill of the sequences and a decode of one
        token of each, with AddRmsNorm for a residual and its norm.
    deterministic
        As for :func:`npu_sim.plan`.
    products, soc, release, product, socs, releases
        As for :func:`preflight`.
    out
        File for the calls, which npu-sim preflight reads.
    **sizes
        Values of the configuration to replace, such as ``num_hidden_layers=2``.

    Raises
    ------
    UsageError
        When PyTorch or transformers is not installed, for an unknown type or size, and for a model
        whose code needs values of tensors.
    """
    try:
        from npu_sim.torch.models import Step, recorded_model
    except ImportError as error:
        raise UsageError(
            "model", "{error}", "pip install torch transformers", error=error
        ) from None
    step = Step(batch, sequence, dtype, optimizer, inference, deterministic)
    recording = recorded_model(config, step, sizes)
    if out is not None:
        recording.write(out)
    found = preflight(
        recording,
        products=products,
        soc=soc,
        release=release,
        product=product,
        socs=socs,
        releases=releases,
        timed=True,
    )
    found.recorded = recording.not_covered()
    return found
