"""The sections of a run file that are the same for every tree."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Text = Annotated[str, Field(strict=True)]
Flag = Annotated[bool, Field(strict=True)]
Name = Annotated[str, Field(strict=True, min_length=1)]
Share = Annotated[float, Field(strict=True, ge=0, le=0.9)]


class Section(BaseModel):
    """A section whose keys are known, and all others refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class DataTable(Section):
    """``[data]``: the rows, and what is to be predicted of them."""

    path: Path = Field(description="CSV, Parquet or .npy file, relative to the run file.")
    target: Name = Field(description="Column to predict.")
    task: Literal["auto", "classification", "regression"] = Field(
        "auto", description="auto: classes for text, true and false, and few whole numbers."
    )
    weights: Name | None = Field(None, description="Column of weights of the rows.")
    drop: tuple[Name, ...] = Field((), description="Columns to leave out.")
    test_fraction: Share = Field(0.2, description="Share of the rows held out to be scored.")
    test: Path | None = Field(None, description="Instead: a file of rows to be scored.")
    storage: Literal["memory", "disk"] = Field(
        "memory", description="disk: rows are read in chunks and never all in memory."
    )


class OutputTable(Section):
    """``[output]``: where the run is written, and what is made of it."""

    folder: Path = Field(description="Folder of the run, relative to the run file.")
    draws: Flag = Field(True, description="Write the posterior draws: posterior.nc.")
    report: Flag = Field(True, description="Write report.html.")
    predictions: Flag = Field(True, description="Write predictions of the held-out rows.")


class Head(Section):
    """The keys above all tables."""

    title: Text = Field("", description="Heads the report.")
    question: Text = Field("", description="What the run is to answer; heads the report.")
    seed: Annotated[int, Field(strict=True, ge=0, lt=2**32)] = Field(
        0, description="Of the random numbers."
    )
