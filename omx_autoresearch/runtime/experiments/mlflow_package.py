"""MLflow, loaded for one export: quiet, without usage reports, bound to one local store."""

from __future__ import annotations

import importlib
import logging
import os
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from omx_autoresearch.core.values import dataclass
from omx_autoresearch.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

_SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_DISABLE_AUTO_LOGGING": "true",
}
_NEEDED = ("sqlalchemy", "alembic", "mlflow")
"""The skinny package opens a SQLite store only where the first two are there."""


@dataclass(frozen=True, slots=True)
class Mlflow:
    """A client of one store, and the module with the classes that it takes."""

    client: Any
    entities: Any


@contextmanager
def loaded_mlflow(tracking_uri: str) -> Iterator[Mlflow]:
    """MLflow on a store, which is made where it is missing.

    Raises:
        UsageError: the extra is not installed, or MLflow cannot open the store.
    """
    with _settings(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # other people's deprecations
        try:
            for name in _NEEDED:
                importlib.import_module(name)
            tracking = importlib.import_module("mlflow.tracking")
            entities = importlib.import_module("mlflow.entities")
            refusal = importlib.import_module("mlflow.exceptions").MlflowException
            database_fault = importlib.import_module("sqlalchemy.exc").SQLAlchemyError
        except ImportError as error:
            raise UsageError(
                f"an export to MLflow needs the packages of the extra `mlflow`; {error.name or error} cannot be loaded",
                next_step="pip install 'omx-autoresearch[mlflow]'",
            ) from None
        logging.getLogger("alembic").setLevel(logging.WARNING)
        logging.getLogger("mlflow").setLevel(logging.WARNING)
        try:
            yield Mlflow(
                tracking.MlflowClient(tracking_uri=tracking_uri, registry_uri=tracking_uri), entities
            )
        except (refusal, database_fault) as error:
            raise UsageError(
                f"MLflow cannot write to {tracking_uri}: {str(error).partition(chr(10))[0]}",
                next_step="name another folder, or update the store: mlflow db upgrade URI",
            ) from error


@contextmanager
def _settings() -> Iterator[None]:
    """MLflow's own switches for as long as it works for us; whatever stood there before comes back."""
    before = {name: os.environ.get(name) for name in _SETTINGS}
    os.environ.update(_SETTINGS)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
