"""Jobs, gates and leases, as simply as they can be said."""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

PAUSE_MS: Final = 1_000
REPAIR: Final = 5
GateOf = tuple[int, int]


class Refused(Exception):
    """What the model does not allow; the text is the name of the error that the catalog must raise."""


class Token(NamedTuple):
    """A lease that somebody was given at some time."""

    job_id: int
    worker: str
    attempt: int


@dataclass
class Job:
    """One job."""

    job_id: int
    kind: int
    db_id: int | None
    priority: int
    attempts_max: int
    state: str = "Pending"
    attempts: int = 0
    due_ms: int = 0
    updated_ms: int = 0
    cancel_requested: bool = False
    worker: str = ""
    repairs: int | None = None
    repairs_kind: int | None = None

    @property
    def gate(self) -> GateOf | None:
        return None if self.db_id is None else (self.db_id, self.repairs_kind or self.kind)


@dataclass
class Gate:
    """Who closed it, and who alone may open it."""

    active: int | None = None
    repair: int | None = None


@dataclass
class JobsModel:
    """Every job, and every gate."""

    now_ms: int
    jobs: dict[int, Job] = field(default_factory=dict)
    gates: dict[GateOf, Gate] = field(default_factory=dict)

    def enqueue(self, job: Job) -> None:
        self._check_place(job)
        job.updated_ms = self.now_ms
        self.jobs[job.job_id] = job

    def claimable(self, kinds: frozenset[int]) -> int | None:
        found = [
            (job.priority, job.due_ms, job.job_id)
            for job in self.jobs.values()
            if job.state == "Pending"
            and job.due_ms <= self.now_ms
            and self._is_served(job, kinds)
            and self._passes(job)
        ]
        return min(found)[2] if found else None

    def claim(self, job_id: int, worker: str) -> Token:
        job = self._set(job_id, "InFlight")
        job.attempts, job.worker = job.attempts + 1, worker
        if job.gate and job.repairs is None:
            self._gate(job).active = job_id
        return Token(job_id, worker, job.attempts)

    def renew(self, token: Token) -> None:
        self._held(token).updated_ms = self.now_ms

    def finish(self, token: Token) -> None:
        job = self._held(token)
        interrupted = self.jobs.get(job.repairs or 0)
        self._set(job.job_id, "Completed").cancel_requested = False
        if interrupted and interrupted.state == "AwaitingRepair" and self._gate(job).repair == job.job_id:
            self._again(interrupted)
        if job.gate:
            self.gates[job.gate] = Gate()

    def fail(self, token: Token, *, for_good: bool) -> None:
        job = self._held(token)
        self._open(job)
        if for_good or job.attempts >= job.attempts_max:
            self._set(job.job_id, "FailedPermanent")
        else:
            self._back(job, self.now_ms + PAUSE_MS)

    def release(self, token: Token) -> None:
        job = self._held(token)
        job.attempts_max += 1
        self._open(job)
        due_ms = 0 if self._is_taken(job) else job.due_ms
        self._back(job, due_ms)

    def abort(self, token: Token) -> None:
        job = self._held(token)
        self._open(job)
        self._set(job.job_id, "Cancelled")

    def cancel(self, job_id: int) -> None:
        job = self.jobs[job_id]
        if job.state in ("Completed", "FailedPermanent", "Cancelled"):
            return
        if job.repairs is not None:
            raise Refused("UsageError")
        if job.state == "Pending":
            self._set(job_id, "Cancelled")
        else:
            job.cancel_requested, job.updated_ms = True, self.now_ms

    def retry(self, job_id: int, attempts_more: int) -> None:
        job = self.jobs[job_id]
        if job.state not in ("FailedPermanent", "Cancelled"):
            raise Refused("ConflictError")
        self._check_place(job)
        self._set(job_id, "Pending")
        job.attempts_max, job.due_ms, job.cancel_requested = job.attempts + attempts_more, 0, False

    def break_off(self, job_id: int, repair_id: int) -> None:
        job = self.jobs[job_id]
        assert job.state == "InFlight"
        if job.gate is None or job.repairs is not None:
            self._again(job)
            return
        self._set(job_id, "AwaitingRepair")
        self.gates[job.gate] = Gate(job_id, repair_id)
        self.jobs[repair_id] = Job(
            repair_id,
            REPAIR,
            job.db_id,
            0,
            job.attempts_max,
            repairs=job_id,
            repairs_kind=job.kind,
            updated_ms=self.now_ms,
        )

    def redate(self) -> int:
        late = [
            job
            for job in self.jobs.values()
            if job.state == "Pending" and job.attempts and job.due_ms > self.now_ms and job.updated_ms > self.now_ms
        ]
        for job in late:
            job.due_ms = self.now_ms + max(0, job.due_ms - job.updated_ms)
            job.updated_ms = self.now_ms
        return len(late)

    def is_held(self, token: Token) -> bool:
        job = self.jobs[token.job_id]
        return job.state == "InFlight" and (job.worker, job.attempts) == (token.worker, token.attempt)

    def _held(self, token: Token) -> Job:
        if not self.is_held(token):
            raise Refused("LeaseLost")
        return self.jobs[token.job_id]

    def _set(self, job_id: int, state: str) -> Job:
        job = self.jobs[job_id]
        job.state, job.updated_ms = state, self.now_ms
        return job

    def _again(self, job: Job) -> None:
        if job.attempts >= job.attempts_max and not job.cancel_requested:
            self._set(job.job_id, "FailedPermanent")
        else:
            self._back(job, job.due_ms)

    def _back(self, job: Job, due_ms: int) -> None:
        gone = job.cancel_requested or self._is_taken(job)
        self._set(job.job_id, "Cancelled" if gone else "Pending").due_ms = due_ms

    def _is_taken(self, job: Job) -> bool:
        return job.gate is not None and any(
            other.state == "Pending"
            and other is not job
            and (other.gate, other.repairs is None) == (job.gate, job.repairs is None)
            for other in self.jobs.values()
        )

    def _check_place(self, job: Job) -> None:
        if self._is_taken(job):
            raise Refused("UniqueJobAlreadyPending")

    def _gate(self, job: Job) -> Gate:
        return self.gates.setdefault(job.gate, Gate()) if job.gate else Gate()

    def _open(self, job: Job) -> None:
        if job.gate and self._gate(job).active == job.job_id:
            self.gates[job.gate] = Gate()

    def _passes(self, job: Job) -> bool:
        gate = self._gate(job)
        return gate.active is None or gate.repair == job.job_id

    @staticmethod
    def _is_served(job: Job, kinds: frozenset[int]) -> bool:
        return (job.repairs_kind or job.kind) in kinds
