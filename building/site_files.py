"""Put each page of the documentation site where it is in the repository, so links hold in both.

MkDocs calls `on_files` (mkdocs.yml names this file), and has found the files of docs/ alone.
"""

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent

BESIDE_DOCS = [
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "README.md",
    "benchmarks/RESULTS.md",
    "examples/grafana/brokers.json",
    "examples/grafana/kgroup-serve.json",
    "examples/pipelines/__init__.py",
]
"""What pages link to outside docs/. A link to a file that is not here fails the build."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Move the files of docs/ below docs/, and add those beside it."""
    paths = list(BESIDE_DOCS)
    for file in list(files):
        if file.src_dir == config.docs_dir:
            files.remove(file)
            paths.append(f"docs/{file.src_uri}")

    for path in paths:
        files.append(File(path, str(ROOT), config.site_dir, config.use_directory_urls))
    return files
