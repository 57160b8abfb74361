"""The base of everything that is stored or sent as JSON: infinite watermarks are written as strings."""

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    model_config = ConfigDict(ser_json_inf_nan="strings")


class FrozenRecord(Record):
    model_config = ConfigDict(frozen=True)
