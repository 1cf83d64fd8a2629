"""Messages about the host's memory: the kernel's log, container limits, exits, and programs refused by the system."""

from __future__ import annotations

import re

from vramledger.diagnosis.messages.kind import Domain, MessageKind, Standing
from vramledger.diagnosis.messages.wording import MessagePattern, part, wording

KERNEL_KILL = MessageKind(
    name="kernel-oom-kill",
    domain=Domain.HOST,
    standing=Standing.CAUSE,
    meaning="the kernel killed a process because the whole host was out of memory",
    source="linux mm/oom_kill.c; kB are KiB",
)
CGROUP_KILL = MessageKind(
    name="cgroup-oom-kill",
    domain=Domain.HOST,
    standing=Standing.CAUSE,
    meaning="the kernel killed a process because its container's memory limit was reached",
    source="linux mm/oom_kill.c, mm/memcontrol.c; kB are KiB",
)
KERNEL_CONSTRAINT = MessageKind(
    name="kernel-oom-constraint",
    domain=Domain.HOST,
    standing=Standing.CAUSE,
    meaning="what the kernel's kill was about: CONSTRAINT_NONE the whole host, CONSTRAINT_MEMCG one container",
    source="linux mm/oom_kill.c, 4.19 on",
)
KERNEL_INVOKED = MessageKind(
    name="kernel-oom-invoked",
    domain=Domain.HOST,
    standing=Standing.CAUSE,
    meaning="an allocation of this task made the kernel look for a process to kill",
    source="linux mm/oom_kill.c",
)
CGROUP_USAGE = MessageKind(
    name="cgroup-usage",
    domain=Domain.HOST,
    standing=Standing.EVIDENCE,
    meaning="use and limit of the container whose process is about to be killed",
    source="linux mm/memcontrol.c",
)
CGROUP_EVENTS = MessageKind(
    name="cgroup-events",
    domain=Domain.HOST,
    standing=Standing.CAUSE,
    meaning="the container's own count of processes killed at its memory limit",
    source="linux cgroup v2, memory.events: oom_kill",
)
OOM_KILLED = MessageKind(
    name="container-oom-killed",
    domain=Domain.HOST,
    standing=Standing.CAUSE,
    meaning="the container runtime says that a process in the container was killed at its memory limit",
    source="Kubernetes container state, Docker inspect, containerd, systemd",
)
NODE_PRESSURE = MessageKind(
    name="node-memory-pressure",
    domain=Domain.HOST,
    standing=Standing.CAUSE,
    meaning="the pod was evicted because its node was short of memory",
    source="kubelet eviction manager",
)
KILLED = MessageKind(
    name="killed",
    domain=Domain.HOST,
    standing=Standing.CAUSE,
    meaning="a process was killed from outside (signal 9); only the kernel's log or the container's events prove why",
    source="shells, service managers, launchers: exit code 137, -9, SIGKILL",
    proves_memory=False,
)
BUS_ERROR = MessageKind(
    name="bus-error",
    domain=Domain.SHARED_SEGMENT,
    standing=Standing.CAUSE,
    meaning="a process touched a page of shared memory that could not be had: /dev/shm is full",
    source="shells, launchers: exit code 135, -7, SIGBUS",
    proves_memory=False,
)
SHARED_FULL = MessageKind(
    name="shared-memory-full",
    domain=Domain.SHARED_SEGMENT,
    standing=Standing.CAUSE,
    meaning="a shared-memory segment could not be made or filled: /dev/shm is full",
    source="PyTorch, Python, NCCL: No space left on device in /dev/shm",
)
CPU_ALLOCATOR = MessageKind(
    name="cpu-allocator",
    domain=Domain.HOST,
    standing=Standing.CAUSE,
    meaning="the host refused an allocation",
    source="pytorch c10/core/impl/alloc_cpu.cpp; numpy; C++ and Rust runtimes",
)
RAY_KILLED = MessageKind(
    name="ray-memory-monitor",
    domain=Domain.HOST,
    standing=Standing.CAUSE,
    meaning="Ray's own monitor killed workers because the node's host memory passed its threshold (not the kernel)",
    source="ray src/ray/raylet/worker_killing_policy.cc, 2.2 on",
)
RAY_DIED = MessageKind(
    name="ray-worker-died",
    domain=Domain.HOST,
    standing=Standing.CAUSE,
    meaning="a Ray worker died; the host's OOM killer is one of several reasons that Ray names as possible",
    source="ray src/ray/core_worker, 2.0 on",
    proves_memory=False,
)

KINDS = (
    KERNEL_KILL,
    CGROUP_KILL,
    KERNEL_CONSTRAINT,
    KERNEL_INVOKED,
    CGROUP_USAGE,
    CGROUP_EVENTS,
    OOM_KILLED,
    NODE_PRESSURE,
    KILLED,
    BUS_ERROR,
    SHARED_FULL,
    CPU_ALLOCATOR,
    RAY_KILLED,
    RAY_DIED,
)

_VICTIM = (
    r"Kill(?:ed)? process (?P<pid_id>INT)",
    r"Kill(?:ed)? process [0-9.]{1,12},? ?(?:UID [0-9]{1,10},? ?)?\((?P<task>[^)\n]{1,60})\)",
    r"total-vm:(?P<total_vm_kib>INT)kB",
    r"anon-rss:(?P<anon_rss_kib>INT)kB",
    r"file-rss:(?P<file_rss_kib>INT)kB",
    r"shmem-rss:(?P<shmem_rss_kib>INT)kB",
    r"UID:(?P<uid_id>INT)",
    r"pgtables:(?P<pgtables_kib>INT)kB",
    r"pgtables:(?P<pgtables_bytes>INT)bytes",
    r"oom_score_adj:(?P<oom_score_adj_count>INT)",
)
# Without digits an anchor must still be rare: a reader looks for anchors with the digits taken out.
_EXIT_FORMS = (
    "exit code",
    "exitcode",
    "exitCode",
    "exit_code",
    "Exit Code",
    "ExitCode",
    "exited with code",
    "exited with status",
    "exit status",
    "return code",
    "returned code",
    "Exited (",
)


def _exit(kind: MessageKind, code: int, signal: str, form: str) -> MessagePattern:
    """An exit code as launchers, shells and container tools print it."""
    return wording(
        kind, form, rf"{re.escape(form)}[ =:\"']{{0,10}}{code}(?![0-9])", exit_code=code, signal=signal
    )


PATTERNS = (
    wording(
        CGROUP_KILL,
        "emory cgroup out of memory",
        r"[Mm]emory cgroup out of memory",
        *_VICTIM,
        scope="container",
    ),
    wording(
        KERNEL_KILL, "Out of memory: Kill", r"Out of memory: Kill(?:ed)? process", *_VICTIM, scope="host"
    ),
    wording(KERNEL_KILL, "total-vm:", r"Kill(?:ed)? process (?=[0-9]{1,10},? ).{0,120}total-vm:", *_VICTIM),
    wording(
        KERNEL_CONSTRAINT,
        "oom-kill:constraint=",
        r"oom-kill:constraint=(?P<constraint>[A-Z_]{5,40})",
        r"\btask=(?P<task>[^,\s]{1,60})",
        r"\bpid=(?P<pid_id>INT)",
        r"\buid=(?P<uid_id>INT)",
        r"oom_memcg=(?P<cgroup>[^,\s]{1,300})",
        r"\b(?P<scope>global)_oom\b",
    ),
    wording(
        KERNEL_INVOKED,
        "invoked oom-killer",
        r"(?P<task>[^\s\]]{1,60}) invoked oom-killer",
        r"\border=(?P<order_count>INT)",
        r"oom_score_adj=(?P<oom_score_adj_count>INT)",
    ),
    wording(
        CGROUP_USAGE,
        "memory: usage ",
        r"\bmemory: usage (?P<used_kib>INT)kB",
        r"limit (?P<limit_kib>INT)kB",
        r"failcnt (?P<failures_count>INT)",
    ),
    wording(CGROUP_EVENTS, "oom_kill ", r"(?:^|\s)oom_kill (?P<killed_count>[1-9][0-9]{0,9})\b"),
    wording(OOM_KILLED, "OOMKilled", r"OOMKilled(?![\"']? ?[:=] ?[Ff]alse)"),
    wording(OOM_KILLED, "OOM Killed", r"OOM Killed"),
    wording(OOM_KILLED, "TaskOOM", r"TaskOOM\b"),
    wording(OOM_KILLED, "'oom-kill'", r"Failed with result 'oom-kill'"),
    wording(OOM_KILLED, "killed by the OOM killer", r"killed by the OOM killer"),
    wording(
        OOM_KILLED,
        "System OOM encountered",
        r"System OOM encountered, victim process: (?P<task>[^,\s]{1,60})",
        r"pid: (?P<pid_id>INT)",
    ),
    wording(
        OOM_KILLED, "systemd-oomd", r"systemd-oomd killed|Killed .{1,200} due to memory (?:used|pressure)"
    ),
    wording(
        NODE_PRESSURE,
        "was low on resource: memory",
        r"was low on resource: memory",
        r"was using (?P<used_kib>INT)Ki",
        r"request is (?P<request_kib>INT)Ki",
    ),
    wording(
        RAY_KILLED,
        "killed due to memory pressure",
        r"(?P<workers_count>INT) Workers? \(tasks / actors\) killed due to memory pressure",
    ),
    wording(
        RAY_KILLED,
        "exceeds the memory usage threshold",
        r"[Mm]emory on the node",
        r"was (?P<used_sized>SIZE) / (?P<total_sized>SIZE)",
        r"memory used=(?P<worker_sized>SIZE)",
        r"\((?P<used_ratio>0\.[0-9]{1,18})\)",
        r"usage threshold of (?P<threshold_ratio>NUM)",
    ),
    wording(RAY_DIED, "killed by SIGKILL by OOM killer", r"worker process has died|SIGKILL by OOM killer"),
    wording(
        CPU_ALLOCATOR,
        "DefaultCPUAllocator",
        r"DefaultCPUAllocator: (?:can't allocate memory|not enough memory)",
        r"you tried to allocate (?P<requested_bytes>INT) bytes",
        r"Error code (?P<error_id>INT)",
    ),
    wording(
        CPU_ALLOCATOR,
        "Unable to allocate",
        r"Unable to allocate (?P<requested_sized>SIZE) for an array",
    ),
    wording(CPU_ALLOCATOR, "std::bad_alloc", r"std::bad_alloc"),
    wording(
        CPU_ALLOCATOR,
        "Cannot allocate memory",
        r"(?:\[Errno 12\]|os error 12|errno[= ]12|mmap failed|OSError).{0,80}Cannot allocate memory|"
        r"Cannot allocate memory \((?:os error 12|12)\)|unable to mmap [0-9]",
        part(r"unable to mmap (?P<requested_bytes>INT) bytes", anywhere=True),
        r"Cannot allocate memory \((?:os error )?(?P<error_id>12)\)",
    ),
    wording(
        CPU_ALLOCATOR, "memory allocation of ", r"memory allocation of (?P<requested_bytes>INT) bytes failed"
    ),
    wording(CPU_ALLOCATOR, "MemoryError", r"(?:^|\s)MemoryError(?:$|:|\s)"),
    wording(
        SHARED_FULL,
        "No space left on device",
        r"(?:/dev/shm|torch_[0-9]{1,10}_[0-9]{1,12}|shared memory|shm).{0,200}No space left on device|"
        r"No space left on device.{0,120}(?:/dev/shm|shared memory|shm)",
        r"size (?P<requested_bytes>INT)",
    ),
    wording(
        SHARED_FULL,
        "posix_fallocate failed",
        r"Call to posix_fallocate failed ?: ?No space left on device",
    ),
    wording(
        SHARED_FULL,
        "creating shared memory segment",
        r"Error while creating shared memory segment",
        r"\(size (?P<requested_bytes>INT)\)",
    ),
    wording(SHARED_FULL, "insufficient shared memory", r"insufficient shared memory \(shm\)"),
    wording(BUS_ERROR, "Bus error", r"Bus error", signal="SIGBUS"),
    wording(BUS_ERROR, "SIGBUS", r"SIGBUS", signal="SIGBUS"),
    *(_exit(BUS_ERROR, 135, "SIGBUS", form) for form in _EXIT_FORMS),
    *(_exit(KILLED, code, "SIGKILL", form) for code in (137, -9) for form in _EXIT_FORMS),
    wording(KILLED, "SIGKILL", r"(?<!via Signals\.)SIGKILL", signal="SIGKILL"),
    wording(KILLED, "by signal", r"\b(?:killed|terminated) by signal:? 9\b", signal="SIGKILL"),
    wording(KILLED, "signal: killed", r"signal: killed", signal="SIGKILL"),
    wording(KILLED, "/KILL", r"status=9/KILL", signal="SIGKILL"),
    wording(
        KILLED,
        "Killed",
        r"(?:^|[\]/%] ?|\bline [0-9]{1,5}: {1,9}[0-9]{1,8} )Killed(?: {4}|\s{0,20}$)",
        signal="SIGKILL",
    ),
)
