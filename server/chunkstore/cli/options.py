"""Options shared by commands: each a flag and an environment variable, with one definition."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from chunkstore.composition.settings import LogLevel, Ranking, Settings, StoreKind
from chunkstore.domain.results import FusionMethod

DEFAULTS = Settings()

_STORE, _SERVER, _LIMITS = "Store", "Server", "Limits"

StoreOption = Annotated[
    StoreKind, typer.Option(envvar="CHUNKSTORE_STORE", help="Where chunks are kept.", rich_help_panel=_STORE)
]
DsnOption = Annotated[
    str | None,
    typer.Option(
        envvar="CHUNKSTORE_DSN",
        help="PostgreSQL to use. Without it, a private one is started. Add statement_cache_size=0 for PgBouncer.",
        show_default=False,
        rich_help_panel=_STORE,
    ),
]
DataDirOption = Annotated[
    Path | None,
    typer.Option(
        envvar="CHUNKSTORE_DATA_DIR",
        help="Where the private PostgreSQL keeps its data. Default: the user's data folder.",
        show_default=False,
        rich_help_panel=_STORE,
    ),
]
RankingOption = Annotated[
    Ranking,
    typer.Option(
        envvar="CHUNKSTORE_RANKING",
        help="Where a PostgreSQL store ranks: in memory, always as fresh as the last commit, or in SQL.",
        rich_help_panel=_STORE,
    ),
]
AnalyzerOption = Annotated[
    str,
    typer.Option(
        envvar="CHUNKSTORE_ANALYZER",
        help="How texts become terms: standard, or a Snowball language.",
        rich_help_panel=_STORE,
    ),
]
EmbeddingsOption = Annotated[
    str,
    typer.Option(
        envvar="CHUNKSTORE_EMBEDDINGS",
        help="wordllama (inside the package), openai:MODEL (any compatible endpoint), hashing (tests), or none.",
        rich_help_panel=_STORE,
    ),
]
EmbeddingsUrlOption = Annotated[
    str | None,
    typer.Option(
        envvar="CHUNKSTORE_EMBEDDINGS_URL",
        help="Base URL of an OpenAI-compatible endpoint.",
        show_default=False,
        rich_help_panel=_STORE,
    ),
]
EmbeddingsApiKeyOption = Annotated[
    str | None,
    typer.Option(
        envvar="CHUNKSTORE_EMBEDDINGS_API_KEY",
        help="Its key; better set in the environment.",
        show_default=False,
        rich_help_panel=_STORE,
    ),
]
DimensionOption = Annotated[
    int | None,
    typer.Option(
        envvar="CHUNKSTORE_DIMENSION",
        help="Width of vectors. Default: the provider's.",
        show_default=False,
        rich_help_panel=_STORE,
    ),
]
ServerFusionOption = Annotated[
    FusionMethod,
    typer.Option(
        "--fusion",
        envvar="CHUNKSTORE_FUSION",
        help="How the channels of a query are fused, unless it says.",
        rich_help_panel=_SERVER,
    ),
]
AddressOption = Annotated[
    str,
    typer.Option(
        envvar="CHUNKSTORE_ADDRESS", help="HOST:PORT; loopback only; port 0 takes a free one.", rich_help_panel=_SERVER
    ),
]
ConsoleOption = Annotated[
    str | None,
    typer.Option(
        envvar="CHUNKSTORE_CONSOLE",
        help="HOST:PORT for a page that shows how answers come about; loopback only. Default: no page.",
        show_default=False,
        rich_help_panel=_SERVER,
    ),
]
LogLevelOption = Annotated[
    LogLevel,
    typer.Option(envvar="CHUNKSTORE_LOG_LEVEL", help="The least that is logged.", rich_help_panel=_SERVER),
]
ServerAddressOption = Annotated[str, typer.Option("--address", envvar="CHUNKSTORE_ADDRESS", help="Server, HOST:PORT.")]
TenantOption = Annotated[str, typer.Option("--tenant", envvar="CHUNKSTORE_TENANT", help="Whose corpus.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def limit_option(name: str, text: str) -> Any:
    """A numeric option of `serve` whose flag and environment variable carry the setting's name."""
    return typer.Option(envvar=f"CHUNKSTORE_{name.upper()}", help=text, rich_help_panel=_LIMITS)


def settings_of(**values: Any) -> Settings:
    """Validated settings; ends the command with one line naming the bad option otherwise."""
    try:
        return Settings(**values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        name = ".".join(map(str, first["loc"])).replace("_", "-")
        problem = str(first["msg"]).removeprefix("Value error, ")
        raise typer.BadParameter(f"{'--' + name + ': ' if name else ''}{problem}") from None
