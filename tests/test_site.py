"""The docs site and what surrounds a release, without building either: `make docs` and `make wheel` do that."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
import subprocess
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

import oodles
from conftest import SLOW

ROOT = Path(__file__).parent.parent
SITE: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text())


def _hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "docs" / "hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


hooks = _hooks()


# pages


def pages(nav: Any) -> list[str]:
    """The files that a part of the navigation names."""
    if isinstance(nav, str):
        return [nav]
    return [page for part in (nav.values() if isinstance(nav, dict) else nav) for page in pages(part)]


def test_the_navigation_names_every_page_once() -> None:
    docs = ROOT / "docs"
    written = [path.relative_to(docs).as_posix() for path in docs.rglob("*.md")] + list(hooks.ELSEWHERE)
    assert sorted(pages(SITE["nav"])) == sorted(written)
    assert all((ROOT / place).is_file() for place in hooks.ELSEWHERE.values())


def test_the_api_page_has_every_public_name() -> None:
    listed = re.findall(r"^::: oodles\.(\w+)$", (ROOT / "docs" / "api.md").read_text(), flags=re.MULTILINE)
    assert sorted(listed) == sorted(oodles.__all__)


def test_links_between_files_become_links_between_pages() -> None:
    text = "[a](docs/nli.md#sets) ![b](docs/report.png) [c](examples/) [d](LICENSE) [e](https://x.org/y) [f](#here)"
    assert hooks.relinked(text, "index.md") == (
        "[a](nli.md#sets) ![b](report.png) [c](examples.md) d [e](https://x.org/y) [f](#here)"
    )
    text = "[a](../examples/README.md) [b](nli.md) [c](../examples/nli3/suite.toml) [d](../README.md)"
    assert hooks.relinked(text, "models.md") == "[a](examples.md) [b](nli.md) c [d](index.md)"
    assert hooks.relinked("[a](../docs/nli.md)", "examples.md") == "[a](nli.md)"


# nothing from the network


@pytest.mark.parametrize(
    "html",
    [
        '<script src="https://cdn.example/x.js"></script>',
        '<link rel="stylesheet" href="//cdn.example/x.css">',
        '<link rel="preconnect" href="https://fonts.example">',
        '<img alt="" src="http://badge.example/x.svg">',
        '<img srcset="a.png, https://x.example/b.png 2x">',
        '<iframe src="https://x.example"></iframe>',
        '<p style="background: url(https://x.example/y.png)">',
        "<style>@import 'https://x.example/y.css';</style>",
        '<pre class="mermaid">graph</pre>',
        '<a href="https://host.example" data-md-component="source">',
    ],
)
def test_what_a_page_would_load_is_seen(html: str) -> None:
    assert len(hooks.loads(f"<html><body>{html}</body></html>")) == 1


def test_links_and_files_of_the_site_are_not_loads_from_the_network() -> None:
    html = '<a href="https://arxiv.org">x</a><script src="assets/a.js"></script><link rel="canonical" href="https://x.org">'
    assert hooks.loads(f"{html}<style>a {{ background: url(data:image/png;base64,x) }}</style>") == []
    assert hooks.css_loads("@import 'b.css'; a { background: url(\"c.png\") }") == []


def test_the_theme_loads_no_fonts_and_asks_no_host() -> None:
    assert SITE["theme"]["font"] is False
    assert "repo_url" not in SITE
    plugins = [next(iter(p)) if isinstance(p, dict) else p for p in SITE["plugins"]]
    assert sorted(plugins) == ["mkdocstrings", "search"]  # `offline` would load a script from a CDN


# docstrings, as the reference shows them


DESCRIBED_BY = {"plot_residuals": "plot_fits", "read_records": "read_runs"}  # whose docstrings refer to another's


@pytest.mark.parametrize("name", oodles.__all__)
def test_each_parameter_has_an_entry_of_its_own(name: str) -> None:
    """Names that share an entry would all be shown with the type and default of the first."""
    known, text = set(inspect.signature(getattr(oodles, name)).parameters), inspect.getdoc(getattr(oodles, name)) or ""
    entries = [entry.lstrip("*") for entry in _entries(text)]
    if name in DESCRIBED_BY:
        assert f"`{DESCRIBED_BY[name]}`" in text
        assert entries == []
    else:
        assert sorted(entries) == sorted(known)


def _entries(text: str) -> list[str]:
    """The unindented lines of the section on parameters."""
    section = re.search(r"^Parameters\n-+\n(.*?)(?=^\w+\n-+$|\Z)", text, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"^\S.*$", section[1], flags=re.MULTILINE) if section else []


@pytest.mark.parametrize("name", oodles.__all__)
def test_a_default_that_the_signature_only_names_is_in_the_docstring(name: str) -> None:
    documented = getattr(oodles, name)
    function = documented.__init__ if inspect.isclass(documented) else documented
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    assert isinstance(node, ast.FunctionDef)
    arguments, defaults = node.args.posonlyargs + node.args.args, node.args.defaults
    given = list(zip(arguments[len(arguments) - len(defaults) :], defaults, strict=True))
    for argument, default in [*given, *zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)]:
        if isinstance(default, ast.Name):
            value = inspect.signature(function).parameters[argument.arg].default
            assert str(value).replace("'", '"') in (documented.__doc__ or ""), f"{name}: {argument.arg}={value}"


# the way to a release


def test_the_workflow_runs_the_same_checks_as_everybody() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    steps = workflow["jobs"]["test"]["steps"]
    assert [step["run"] for step in steps if step.get("name") == "Run the checks"] == [".ci/run"]
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o100
    (python,) = [step["with"] for step in steps if "setup-python" in step.get("uses", "")]
    assert python["python-version"] == "3.11"
    (kept,) = [step["with"]["path"] for step in steps if "upload-artifact" in step.get("uses", "")]
    assert kept in (ROOT / ".ci" / "run").read_text()


def test_the_demo_has_a_report_before_torch_is_installed_and_torch_comes_alone(tmp_path: Path) -> None:
    command = ["make", "--dry-run", "demo", f"VENV={tmp_path / 'venv'}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    steps = (
        "--editable .\n",
        "oodles report bert-hans",
        "install --quiet torch\n",
        "--editable '.[train]'",
        "oodles demo",
    )
    places = [done.stdout.index(step) for step in steps]
    assert places == sorted(places)


def test_pre_commit_runs_what_lint_runs() -> None:
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    hooked = [hook["entry"].split()[0].removeprefix(".venv/bin/") for hook in repository["hooks"]]
    recipe = (ROOT / "Makefile").read_text().split("\nlint:")[1].split("\n\n")[0]
    assert hooked == re.findall(r"\$\(BIN\)/(\w+)", recipe)


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/releasing.md"])
def test_files_and_targets_that_are_named_exist(page: str) -> None:
    text = (ROOT / page).read_text()
    places = re.findall(r"`((?:src|tests|docs|benchmarks|\.ci)/[\w./-]+|[\w.-]+\.(?:md|toml|txt|cff|yml))`", text)
    assert len(places) >= 3
    assert [place for place in places if not (ROOT / place).exists()] == []
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z][a-z-]*)`", text)) <= targets


def test_every_slow_test_is_there() -> None:
    """A test that was renamed would silently be run every day again."""
    for file, names in SLOW.items():
        text = (ROOT / "tests" / file).read_text()
        assert all(f"def {name}" in text for name in names), file
