"""Hooks of the docs site: pages that live outside docs/, and a check that the site loads nothing from the network."""

from __future__ import annotations

import posixpath
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
ELSEWHERE = {
    "index.md": "README.md",
    "examples.md": "examples/README.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
}
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
EXTERNAL = re.compile(r"(?:https?:)?//", re.IGNORECASE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    from mkdocs.structure.files import File

    for page, place in ELSEWHERE.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / place)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    return relinked(markdown, page.file.src_uri)


def on_post_build(config: MkDocsConfig) -> None:
    from mkdocs.exceptions import PluginError

    loads = [found for path in sorted(Path(config.site_dir).rglob("*")) for found in loads_of_file(path)]
    if loads:
        raise PluginError("the site would load from the network: " + "; ".join(loads))


def relinked(markdown: str, page: str) -> str:
    """Links between files of the repository, as links between pages; a file that has no page keeps only its name."""
    folder = posixpath.dirname(ELSEWHERE.get(page, f"docs/{page}"))

    def replace(link: re.Match[str]) -> str:
        mark, text, target, anchor = link.groups("")
        if re.match(r"[a-z]+:|/", target):
            return link[0]
        place = posixpath.normpath(posixpath.join(folder, target))
        goal = site_path(place)
        return f"{mark}[{text}]({posixpath.relpath(goal, posixpath.dirname(page) or '.')}{anchor})" if goal else text

    return LINK.sub(replace, markdown)


def site_path(place: str) -> str:
    """Where a file of the repository is in the site; empty: it is not there."""
    for page, source in ELSEWHERE.items():
        if place in (source, posixpath.dirname(source)):
            return page
    return place.removeprefix("docs/") if place.startswith("docs/") else ""


def loads_of_file(path: Path) -> list[str]:
    if path.suffix == ".html":
        return [f"{path.name}: {address}" for address in loads(path.read_text())]
    if path.suffix == ".css":
        return [f"{path.name}: {address}" for address in css_loads(path.read_text())]
    return []


def loads(html: str) -> list[str]:
    """The addresses outside the site that a browser asks for when it shows this page; links to click are none."""
    reader = _Loads()
    reader.feed(html)
    styles = re.findall(r"<style[^>]*>(.*?)</style>", html, flags=re.DOTALL)
    return reader.found + [address for css in styles for address in css_loads(css)]


def css_loads(css: str) -> list[str]:
    addresses = re.findall(r"url\(\s*[\"']?([^)\"']+)|@import\s+[\"']([^\"']+)", css)
    return [address for pair in addresses for address in pair if EXTERNAL.match(address)]


class _Loads(HTMLParser):
    """Tags that load by themselves, and what makes the theme's script ask for more."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attributes}
        if tag in ("a", "area") or values.get("rel") in ("canonical", "alternate", "prev", "next"):
            values.pop("href", None)
        addresses = [values.get(name, "") for name in ("src", "data", "poster", "href", "xlink:href")]
        addresses += values.get("srcset", "").split(",")
        self.found += [address for address in addresses if EXTERNAL.match(address.strip())]
        self.found += css_loads(values.get("style", ""))
        if "mermaid" in values.get("class", "").split():
            self.found.append("mermaid, from unpkg.com")
        if values.get("data-md-component") == "source":
            self.found.append("facts of the repository, from its host")
