"""Programs linked by LTO with the searches' decisions: none may be larger than with LLVM's own."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from policybridge_client.decisions import Section, Store, format_store
from policybridge_core.errors import PolicyBridgeError
from policybridge_train.compiling.compilation import Plain
from policybridge_train.compiling.decider import Decider
from policybridge_train.compiling.job import FarmCompiler, Wanted
from policybridge_train.compiling.linker import Unlinked
from policybridge_train.compiling.module import Module
from policybridge_train.compiling.store import ByStore
from policybridge_train.corpus.link_time import AtLinkTime
from policybridge_train.farms.local import Held
from policybridge_train.tuning.module import ModuleTuning
from policybridge_train.tuning.storing import StoreKeeper
from policybridge_train.tuning.telling import LinkedSizes


def confirm(
    programs: Sequence[AtLinkTime],
    tunings: Sequence[ModuleTuning],
    compiler: FarmCompiler,
    keeper: StoreKeeper,
    trial: Path,
) -> LinkedSizes:
    """Link each program with its decisions; take decisions that make it larger out of the store, and give the sizes.

    Args:
        programs: that were tuned.
        tunings: of all their parts.
        compiler: links.
        keeper: of the store.
        trial: a file for the store of a link.

    """
    by_part = {id(tuning.module): tuning for tuning in tunings}
    linking = _Linking(compiler, keeper, trial)
    linked = [(each, [by_part[id(part)] for part in each.parts]) for each in programs]
    defaults = [linking.text(each, Plain()) for each, _ in linked]
    while True:
        refused = len(linking.refused)
        sizes = [linking.settled(*each, before) for each, before in zip(linked, defaults, strict=True)]
        # A module that was taken back for one program may be what made another one smaller.
        if len(linking.refused) == refused:
            break
    keeper.write()
    told = [
        (each.program, before, after)
        for (each, _), before, after in zip(linked, defaults, sizes, strict=True)
        if before is not None and after is not None
    ]
    return LinkedSizes(told, linking.refused, [*linking.unlinked.values()])


@dataclass
class _Linking:
    compiler: FarmCompiler
    keeper: StoreKeeper
    trial: Path
    refused: set[str] = field(default_factory=set)
    unlinked: dict[str, Unlinked] = field(default_factory=dict)
    """Why programs cannot be linked by LLVM's own decisions, by the names of their modules."""

    def settled(self, program: AtLinkTime, tunings: Sequence[ModuleTuning], before: int | None) -> int | None:
        """Take back parts, those that won least first, until a program is no larger than before; give its size then.

        If it cannot be linked, nothing of it is kept, and this gives ``None``.
        """
        left = sorted((each for each in tunings if self._sections([each])), key=_won)
        while True:
            after = self._with(program, self._sections(tunings)) if left else before
            if before is not None and after is not None and after <= before:
                return after
            if not left:
                return None
            self._refuse(left.pop(0))

    def _refuse(self, tuning: ModuleTuning) -> None:
        self.refused.add(tuning.module.name)
        if search := tuning.refuse(refused=True):
            self.keeper.put(tuning.module, search)

    def _sections(self, tunings: Sequence[ModuleTuning]) -> list[Section]:
        """Give the sections that the store has for parts; those of one source and digest have one together."""
        made = ((each.module, search) for each in tunings if (search := each.search()))
        found = (self.keeper.kept(module, search) for module, search in made)
        return [section for section in found if section and not section.is_empty]

    def _with(self, program: AtLinkTime, sections: Sequence[Section]) -> int | None:
        # Not by `write_store`, which waits for the disk: this file is read once.
        self.trial.write_bytes(format_store(Store(sections)))
        return self.text(program, ByStore(self.trial, Held(self.trial)))

    def text(self, program: AtLinkTime, decider: Decider) -> int | None:
        """Link a program; give its text, or ``None`` if that fails."""
        module: Module = program.whole
        try:
            return self.compiler.compile(module, decider, Wanted()).checked(module.name).text
        except PolicyBridgeError as error:
            if self.compiler.farm.running.over:
                raise
            if isinstance(decider, Plain):
                self.unlinked[module.name] = Unlinked(program.program, str(error).removeprefix(f"{module.name}: "))
            return None


def _won(tuning: ModuleTuning) -> int:
    search = tuning.search()
    return search.default_text - search.best_text if search else 0
