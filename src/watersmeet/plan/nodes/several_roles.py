"""An input that several nodes look at in different ways, as one side: what any of them needs of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from watersmeet.plan.nodes.columns import Kept
from watersmeet.plan.nodes.input_side import InputSide
from watersmeet.spec.model import Expr


@dataclass(frozen=True)
class SeveralRoles(InputSide):
    """``roles``: what each node asks of the input, all with the same conditions on it alone. A row that can
    match nothing in one of them comes to nothing at all."""

    roles: Sequence[InputSide] = ()

    @classmethod
    def of(cls, roles: Sequence[InputSide]) -> SeveralRoles:
        first = roles[0]
        return cls(**{f.name: getattr(first, f.name) for f in fields(first)}, roles=tuple(roles))

    def computed(self) -> dict[str, Expr]:
        return {name: expr for role in self.roles for name, expr in role.computed().items()}

    def kept(self) -> Kept:
        wanted = [role.kept() for role in self.roles]
        kept = {name for own in wanted for name in own.kept}
        carried = {name for own in wanted for name in own.carried}
        names = dict.fromkeys([*(column.name for column in self.input.columns), *self.computed()])
        return Kept(tuple(n for n in names if n in kept), tuple(n for n in names if n in carried))

    def words(self) -> tuple[tuple[str, str], ...]:
        return tuple({name: text for role in self.roles for name, text in role.words()}.items())

    def not_null(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for role in self.roles for name in role.not_null()))

    def there(self, columns: Mapping[str, Expr]) -> tuple[Expr, ...]:
        return tuple(dict.fromkeys(expr for role in self.roles for expr in role.there(columns)))

    def never_null(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for role in self.roles for name in role.never_null()))
