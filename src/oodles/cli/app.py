"""The verbs of oodles, in the order in which a user meets them; and what becomes of errors."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, Any

import typer
from rich.markup import escape
from typer.core import TyperCommand

from oodles import __version__
from oodles.cli.analyse import analyse, report
from oodles.cli.cluster import cancel
from oodles.cli.compare import compare
from oodles.cli.export import export
from oodles.cli.findings import findings
from oodles.cli.imports import import_
from oodles.cli.plan import plan
from oodles.cli.results import results_only
from oodles.cli.runs import demo, pack, run, status
from oodles.cli.score import score
from oodles.cli.suites import check, fetch, models, suites
from oodles.errors import OodlesError, StoreError, shown
from oodles.runs.progress import open_streams, say, settle_streams, to_nowhere
from oodles.terminal import accept_any_text, keep_results_apart

app = typer.Typer(
    name="oodles",
    help="Do your generalisation results generalise?\n\n"
    "Fine-tune, evaluate on many test sets throughout training, regress in-domain accuracy out of every "
    "out-of-distribution (OOD) accuracy, and correlate what is left.\n\nStart with: oodles demo",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

EXAMPLES = "Examples:"  # what follows this line in the docstring of a verb ends its --help
VERBS: dict[str, list[Callable[..., None]]] = {
    "Try it": [demo, findings],
    "Prepare": [suites, models, fetch, check, plan],
    "Run": [run, status, cancel, score],
    "Read the results": [analyse, report, compare, import_, export, pack],
}


def main() -> None:
    """Entry point: one line and exit 2 for what a user can mend."""
    # GNU OpenMP's threads spin long before they sleep: beside another busy process that brings torch nearly to a halt
    # (measured on two cores: a tenth of its speed; a third with this setting, and no loss on an idle machine). It must
    # be said before torch is loaded.
    os.environ.setdefault("GOMP_SPINCOUNT", "5000")
    open_streams()
    accept_any_text()
    keep_results_apart()
    try:
        with _stdout_told():
            code = app(prog_name="oodles", standalone_mode=False)
        sys.exit(code)
    except OodlesError as error:
        _fail(type(error).__name__, str(error))
    except BrokenPipeError:  # e.g. `oodles suites | head`
        to_nowhere(sys.stdout)
        sys.exit(1)
    except OSError as error:  # of the machine, not of what was asked
        place = f"{error.filename}: " if error.filename is not None else ""
        _fail("StoreError", f"{place}{error.strerror or error}; check the path, its permissions and the disk")
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        _show_usage(error)
    finally:
        settle_streams()


@contextmanager
def _stdout_told() -> Iterator[None]:
    """Results that could not be written whole are an error, also where that shows only at the very end."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OSError as error:
        if error.filename is not None or isinstance(error, BrokenPipeError):  # of a file; of `| head`
            raise
        to_nowhere(sys.stdout)
        raise StoreError(f"the output could not be written ({error.strerror})") from None


def _show_usage(error: Any) -> None:
    """What is wrong with the command line, in one line; the whole help where nothing was asked."""
    context: Any = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        print(context.get_help(), end="")
        sys.exit(2)
    command = context.command_path if context is not None else _asked()
    _fail(command, f"{error.format_message().rstrip('.')}; see {command} --help")


def _asked() -> str:
    """The command that was asked for: the parser forgets it where an option lacks its value."""
    names = {command.name or getattr(command.callback, "__name__", "") for command in app.registered_commands}
    return " ".join(["oodles", *[word for word in sys.argv[1:] if word in names][:1]])


def _fail(kind: str, text: str) -> None:
    """One line, and exit 2."""
    with suppress(OSError):  # stderr may be what cannot be written
        say(f"{kind}: {shown(text, 1100)}")
    sys.exit(2)


def _version(value: bool) -> None:
    if value:
        print(f"oodles {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


class _Verb(TyperCommand):
    """A verb whose help is shown as it is written: [slurm] in it is no markup."""

    def __init__(self, name: str | None, **settings: Any) -> None:
        super().__init__(name, **{**settings, **{key: escape(settings.get(key) or "") for key in ("help", "epilog")}})
        for option in self.params:
            option.help = escape(getattr(option, "help", None) or "")  # type: ignore[attr-defined]

    def invoke(self, ctx: Any) -> Any:
        """Do what was asked; only results reach the standard output."""
        with results_only():
            return super().invoke(ctx)


def _add(verb: Callable[..., None], panel: str, name: str | None = None, *, hidden: bool = False) -> None:
    """A verb, with the help that its docstring holds: paragraphs, which are re-flowed, and examples, line by line."""
    text, _, examples = inspect.cleandoc(verb.__doc__ or "").partition(EXAMPLES)
    paragraphs = [" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n")]
    epilog = "\n".join([EXAMPLES, *(f"$ {line.strip()}" for line in examples.strip().splitlines())])
    help_text = "\n\n".join(paragraphs)
    app.command(name, cls=_Verb, help=help_text, epilog=epilog, rich_help_panel=panel, hidden=hidden)(verb)


for _panel, _verbs in VERBS.items():
    for _verb in _verbs:
        _add(_verb, _panel)
_add(analyse, "", "analyze", hidden=True)
