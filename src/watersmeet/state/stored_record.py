"""The base of everything that is stored or sent as JSON: infinite watermarks are written as strings.

Stored JSON has the names of fields. To rename a field, keep its stored name:
``new: int = Field(validation_alias="old", serialization_alias="old")``.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict


class StoredRecord(BaseModel):
    model_config = ConfigDict(ser_json_inf_nan="strings", populate_by_name=True)

    def model_dump_json(self, **options: Any) -> str:
        """Write it as JSON, by stored names."""
        return super().model_dump_json(**{"by_alias": True, **options})

    def model_dump(self, **options: Any) -> dict[str, Any]:
        """Write it as plain values, by stored names."""
        return super().model_dump(**{"by_alias": True, **options})


class FrozenRecord(StoredRecord):
    model_config = ConfigDict(frozen=True)
