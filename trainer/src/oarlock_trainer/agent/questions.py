"""What people and rank 0's agent want of the ranks: saves, drills, stacks, and why one is slow. Nothing ends by it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oarlock_trainer.agent.link.protocol import Answer, Ask, Topic

if TYPE_CHECKING:
    from oarlock_trainer.agent.hangs.stacks_on_request import StacksOnRequest
    from oarlock_trainer.agent.requests import Requests
    from oarlock_trainer.agent.slow.inquiry import SlowRankInquiry
    from oarlock_trainer.runtime.channel import Message


class Questions:
    """All that may be asked of one agent. Only the main thread may use it."""

    def __init__(self, requests: Requests, slowness: SlowRankInquiry, stacks: StacksOnRequest) -> None:
        self._requests, self._slowness, self._stacks = requests, slowness, stacks

    def watch(self, now: float) -> None:
        """Look a second time at a slow rank when that is due, whatever else happens."""
        self._slowness.advance(now)

    def advance(self, now: float, *, leaving: bool) -> None:
        """Go on with what was asked; a pod that leaves begins nothing new."""
        if words := self._stacks.advance(now):
            self._requests.took_stacks(words, now)
        if not leaving:
            self._requests.advance(now)

    def is_slowness(self, message: Message, now: float) -> bool:
        """Take what a rank tells of a slow one; whether it does."""
        return self._slowness.hear(message, now)

    def hear(self, message: Message, now: float) -> None:
        """Take in what a rank tells of saves."""
        self._requests.hear(message, now)

    def heed(self, news: Ask | Answer, now: float, *, has_ranks: bool) -> None:
        """Take in what came over the gang link: rank 0's agent asks, or is answered."""
        if news.topic == Topic.SLOWNESS:
            if isinstance(news, Ask):
                self._slowness.asked(news, now)
            else:
                self._slowness.answered(news)
        elif news.topic == Topic.STACKS:
            if isinstance(news, Answer):
                self._stacks.answered(news)
            elif has_ranks:
                self._stacks.begin(news.name, now)

    def interrupted(self, words: str, now: float) -> None:
        """The ranks start anew: what they were asked for does not come. `words` say why."""
        self._requests.interrupted(words, now)
        self._stacks.forget()
        self._slowness.forget()
