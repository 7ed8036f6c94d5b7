"""Clients: futures, batching, repeats that never step twice, dead and restarted servers, several servers, errors."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from fake_envs import Counter, Trouble

from agentgym_envs.core import UnknownEnvironment, UnknownItem
from agentgym_envs.server import background_server
from agentgym_lite.client import AsyncEnvClient, EnvClient, EnvironmentFailure, SessionPool


class LossyProxy:
    """Forwards to a server and cuts the connection instead of passing on a reply, whenever ``lose(n)`` is true for reply ``n``."""

    def __init__(self, target: str, lose: Callable[[int], bool]) -> None:
        self.host, port = target.removeprefix("http://").split(":")
        self.port, self.lose, self.replies = int(port), lose, 0
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection(self.host, self.port)

        async def requests() -> None:
            while data := await reader.read(1 << 20):
                to_server.write(data)
            to_server.close()

        forward = asyncio.ensure_future(requests())
        with contextlib.suppress(ConnectionError):
            while data := await from_server.read(1 << 20):
                self.replies += 1
                if self.lose(self.replies):
                    break
                writer.write(data)
        forward.cancel()
        writer.close()
        to_server.close()

    def __enter__(self) -> LossyProxy:
        self.thread.start()
        starting = asyncio.run_coroutine_threadsafe(asyncio.start_server(self.serve, "127.0.0.1", 0), self.loop)
        self.url = f"http://127.0.0.1:{starting.result().sockets[0].getsockname()[1]}"
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()


@pytest.fixture
def dead_url() -> str:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{sock.getsockname()[1]}"


@contextlib.contextmanager
def server_process() -> Iterator[tuple[str, subprocess.Popen[str]]]:
    code = "import fake_envs; from agentgym_envs.server import serve; serve(['counter'], port=0, on_ready=lambda u: print(u, flush=True))"
    command = [sys.executable, "-c", code]
    process = subprocess.Popen(command, cwd=Path(__file__).parent, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


# -- one episode ---------------------------------------------------------------------------------------------------------------------


def test_local_futures_are_done_and_need_no_thread() -> None:
    before, threads = Counter.live, threading.active_count()
    with SessionPool("counter") as pool:
        future = pool.start("counter_3")
        assert future.done()
        handle, observation = future.result()
        assert observation.text == "Reach 4. Count 0, seed 0."
        step = pool.step(handle, "up")
        assert step.done()
        assert step.result().info["score"] == 1
        assert threading.active_count() == threads
        assert pool.close(handle).done()
        assert isinstance(pool.step(handle, "up").exception(), EnvironmentFailure)
        pool.start(1)
    assert Counter.live == before


def test_http_equals_local(url: str) -> None:
    def episode(where: str) -> list[object]:
        with EnvClient("counter", where) as client:
            seen: list[object] = [client.reset("counter_2", seed=9), client.observe()]
            seen += [client.step(a) for a in ("up", "down", "jump", "up", "up", "up", "up")]
            return [*seen, client.observe(), client.available_actions(), client.render(), client.metadata()]

    assert episode("local") == episode(url)


def test_a_client_keeps_one_session_over_resets(url: str) -> None:
    live = Counter.live
    with EnvClient("counter", url) as client:
        for item in range(5):
            assert client.reset(item).text.startswith(f"Reach {item + 1}.")
            assert client.step("up").info["score"] == 1
        assert Counter.live == live + 1
    assert Counter.live == live


async def test_async_client(url: str) -> None:
    for where in ("local", url):
        async with AsyncEnvClient("counter", where) as client:
            with pytest.raises(RuntimeError, match="call reset"):
                await client.step("up")
            assert (await client.reset(0, seed=1)).text == "Reach 1. Count 0, seed 1."
            assert await client.available_actions() == ["up", "down"]
            assert (await client.step("up")).done
            assert (await client.observe()).text == "Move 1. Count 1, seed 1."
            assert (await client.render())["goal"] == 1
            assert (await client.metadata())["name"] == "counter"
            assert (await client.reset(1)).text.startswith("Reach 2")
            with pytest.raises(UnknownItem):
                await client.reset(99)
        await client.close()


async def test_async_clients_wait_together(url: str) -> None:
    clients = [AsyncEnvClient("sleepy", url) for _ in range(4)]
    await asyncio.gather(*(c.reset(5) for c in clients))
    began = time.perf_counter()
    await asyncio.gather(*(c.step("sleep 0.4") for c in clients))
    assert time.perf_counter() - began < 1.2, "one after the other takes 1.6 s"
    await asyncio.gather(*(c.close() for c in clients))


# -- many at a time ------------------------------------------------------------------------------------------------------------------


def test_calls_that_wait_together_share_requests(url: str) -> None:
    with LossyProxy(url, lose=lambda n: False) as proxy, SessionPool("counter", proxy.url) as pool:
        handles = [f.result()[0] for f in [pool.start(i % 12, seed=i) for i in range(64)]]
        assert proxy.replies < 20, "64 sessions must not need 64 requests"
        before = proxy.replies
        for turn in range(1, 6):
            futures = [pool.step(h, "down") for h in handles]
            assert [f.result().info["score"] for f in futures] == [-turn] * 64
        assert proxy.replies - before < 100, "320 steps must not need 320 requests"


def test_sessions_spread_evenly_and_follow_closes(url: str, second_url: str) -> None:
    with SessionPool("counter", [url, second_url]) as pool:
        handles = [f.result()[0] for f in [pool.start(3) for _ in range(10)]]
        on_first = [h for h in handles if h.server.url == url]
        assert len(on_first) == 5
        for future in [pool.close(h) for h in on_first]:
            future.result()
        more = [f.result()[0] for f in [pool.start(3) for _ in range(5)]]
        assert {h.server.url for h in more} == {url}


def test_shutdown_closes_what_is_open_and_may_be_repeated(url: str) -> None:
    live, threads = Counter.live, threading.active_count()
    pool = SessionPool("counter", url)
    handles = [f.result()[0] for f in [pool.start(3) for _ in range(20)]]
    assert Counter.live == live + 20
    pool.shutdown()
    pool.shutdown()
    assert Counter.live == live
    assert threading.active_count() <= threads + 20, "server threads may idle, the client's must be gone"
    assert not any(t.name == "agentgym-client-counter" for t in threading.enumerate())
    assert pool.close(handles[0]).result() is None
    with pytest.raises(EnvironmentFailure, match="shut down"):
        pool.start(3).result()
    with pytest.raises(EnvironmentFailure):
        pool.step(handles[0], "up").result()


def test_shutdown_does_not_leave_a_future_waiting() -> None:
    with background_server(["sleepy"]) as url:
        pool = SessionPool("sleepy", url)
        handle, _ = pool.start(3).result()
        future = pool.step(handle, "sleep 0.5")
        time.sleep(0.1)
        pool.shutdown()
        with pytest.raises(EnvironmentFailure, match="shut down before the answer came"):
            future.result(timeout=1)


def test_one_slow_session_does_not_hold_up_the_pool(url: str) -> None:
    with SessionPool("sleepy", url) as pool:
        handles = [f.result()[0] for f in [pool.start(11) for _ in range(16)]]
        began = time.perf_counter()
        slow = pool.step(handles[0], "sleep 1.5")
        for turn in range(1, 6):
            assert [f.result().info["score"] for f in [pool.step(h, "up") for h in handles[1:]]] == [turn] * 15
        assert time.perf_counter() - began < 1.2
        assert not slow.done()
        assert slow.result().info["score"] == 1
        assert pool.step(handles[0], "up").result().info["score"] == 2, "it was carried out once"


# -- failures ------------------------------------------------------------------------------------------------------------------------


def test_lost_replies_never_step_twice() -> None:
    # Many retries: requests in flight together share the count of replies, so the same one can be hit several times in a row.
    with background_server(["counter"]) as url, LossyProxy(url, lose=lambda n: n % 3 == 0) as proxy:
        steps, live = Counter.steps, Counter.live
        with EnvClient("counter", proxy.url, retries=20) as client:
            client.reset(11)
            scores = [client.step("down").info["score"] for _ in range(12)]
        assert scores == list(range(-1, -13, -1))
        assert Counter.steps == steps + 12
        with SessionPool("counter", proxy.url, retries=20) as pool:
            handles = [f.result()[0] for f in [pool.start(11) for _ in range(8)]]
            assert Counter.live <= live + 9, "a create whose reply was lost must not open a second session"
            for turn in range(1, 7):
                assert [f.result().info["score"] for f in [pool.step(h, "down") for h in handles]] == [-turn] * 8
        assert Counter.steps == steps + 12 + 48


def test_when_every_reply_is_lost_the_caller_hears_of_it() -> None:
    with background_server(["counter"]) as url, LossyProxy(url, lose=lambda n: False) as proxy:
        steps = Counter.steps
        client = EnvClient("counter", proxy.url, retries=2)
        client.reset("counter_5")
        proxy.lose = lambda n: True
        with pytest.raises(EnvironmentFailure, match=r"the connection broke .* \(3 attempts\)") as caught:
            client.step("up")
        client.close()
        assert (caught.value.env, caught.value.url, caught.value.item_id) == ("counter", proxy.url, "counter_5")
        assert Counter.steps == steps + 1


def test_time_out(url: str) -> None:
    with EnvClient("sleepy", url, timeout=2.0) as client:
        client.reset(5)
        assert client.step("sleep 1").info["score"] == 1
    with EnvClient("sleepy", url, timeout=0.3) as client:
        client.reset(5)
        with pytest.raises(EnvironmentFailure, match=r"no answer within 0\.3 s.*raise timeout"):
            client.step("sleep 1.5")
        assert client.reset(6).text == "Reach 7. Count 0, seed 0.", "the next episode does not wait for the lost one"


def test_server_that_hangs() -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        client = EnvClient("counter", f"http://127.0.0.1:{sock.getsockname()[1]}", timeout=0.2, retries=1)
        with pytest.raises(EnvironmentFailure, match=r"no answer within 0\.2 s \(2 attempts\)"):
            client.reset(5)
        client.close()


def test_dead_server_is_named_with_the_way_out(dead_url: str) -> None:
    began = time.perf_counter()
    with EnvClient("counter", dead_url, retries=2) as client, pytest.raises(EnvironmentFailure) as caught:
        client.reset("counter_5")
    for part in ("'counter'", dead_url, "'counter_5'", "no server answers", "3 attempts", "agl serve counter"):
        assert part in str(caught.value)
    assert time.perf_counter() - began < 5


def test_dead_server_among_several_is_passed_over(url: str, dead_url: str) -> None:
    with SessionPool("counter", [dead_url, url]) as pool:
        handles = [f.result()[0] for f in [pool.start(3) for _ in range(6)]]
        assert {h.server.url for h in handles} == {url}


def test_server_killed_in_mid_episode() -> None:
    with server_process() as (url, process):
        client = EnvClient("counter", url, retries=1)
        client.reset("counter_5")
        client.step("up")
        process.kill()
        process.wait()
        with pytest.raises(EnvironmentFailure, match="agl serve counter") as caught:
            client.step("up")
        assert caught.value.url == url
        began = time.perf_counter()
        client.close()
        assert time.perf_counter() - began < 2


def test_session_of_a_restarted_server_is_lost_and_a_new_one_works() -> None:
    with background_server(["counter"]) as url:
        client = EnvClient("counter", url)
        client.reset(5)
        client.step("up")
    with background_server(["counter"], port=int(url.rsplit(":", 1)[1])), client:
        with pytest.raises(EnvironmentFailure, match="the server was restarted"):
            client.step("up")
        with EnvClient("counter", url) as fresh:
            assert fresh.reset(5).text == "Reach 6. Count 0, seed 0."


def test_client_starts_again_after_its_session_was_lost(url: str) -> None:
    for where in ("local", url):
        with EnvClient("trouble", where) as client:
            client.reset(5)
            with pytest.raises(EnvironmentFailure):
                client.step("raise")
            assert client.reset(5).text == "Reach 6. Count 0, seed 0."
            assert client.step("up").info["score"] == 1


def test_full_server_is_waited_for() -> None:
    with background_server(["counter"], max_sessions=1) as url, SessionPool("counter", url) as pool:
        first, _ = pool.start(3).result()
        second = pool.start(4)
        time.sleep(0.1)
        assert not second.done()
        pool.close(first)
        assert second.result()[1].text.startswith("Reach 5")
        with SessionPool("counter", url, retries=1) as other, pytest.raises(EnvironmentFailure, match="1 of at most 1 open"):
            other.start(3).result()


@pytest.mark.parametrize("action", ["raise", "reward", "json", "nan"])
def test_failing_environment(url: str, action: str) -> None:
    live = Trouble.live
    with EnvClient("trouble", url) as client:
        client.reset("trouble_5")
        began = time.perf_counter()
        with pytest.raises(EnvironmentFailure, match="the environment raised") as caught:
            client.step(action)
        assert time.perf_counter() - began < 1, "an environment that failed is not asked again"
        assert caught.value.item_id == "trouble_5"
        with pytest.raises(EnvironmentFailure, match="closed"):
            client.step("up")
    assert Trouble.live == live


def test_failing_environment_in_process() -> None:
    live = Trouble.live
    with EnvClient("trouble") as client:
        client.reset("trouble_5")
        with pytest.raises(EnvironmentFailure, match="ZeroDivisionError: the world fell apart") as caught:
            client.step("raise")
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        assert Trouble.live == live


def test_unknown_item_is_said_at_once(url: str) -> None:
    live = Counter.live
    with SessionPool("counter", url) as pool:
        futures = [pool.start(3), pool.start("counter_99"), pool.start(4)]
        assert futures[0].result()[1].text.startswith("Reach 4")
        with pytest.raises(UnknownItem, match="counter_0 to counter_11"):
            futures[1].result()
        assert futures[2].result()[1].text.startswith("Reach 5")
        assert Counter.live == live + 2


def test_unknown_item_leaves_the_running_episode_alone(url: str) -> None:
    for where in ("local", url):
        with EnvClient("counter", where) as client:
            client.reset(5)
            client.step("up")
            with pytest.raises(UnknownItem):
                client.reset("counter_99")
            assert client.step("up").info["score"] == 2


def test_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AGENTGYM_TOKEN", raising=False)
    with background_server(["counter"], token="sesame") as url:
        for token in (None, "wrong"):
            with EnvClient("counter", url, token) as client, pytest.raises(EnvironmentFailure, match="AGENTGYM_TOKEN"):
                client.reset(3)
        with EnvClient("counter", url, "sesame") as client:
            assert client.reset(3).text.startswith("Reach 4")
        monkeypatch.setenv("AGENTGYM_TOKEN", "sesame")
        with EnvClient("counter", url) as client:
            assert client.reset(3).text.startswith("Reach 4")


def test_something_that_is_not_an_environment_server() -> None:
    def answer(sock: socket.socket) -> None:
        while True:
            try:
                connection, _ = sock.accept()
            except OSError:
                return
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")

    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        threading.Thread(target=answer, args=(sock,), daemon=True).start()
        url = f"http://127.0.0.1:{sock.getsockname()[1]}"
        with EnvClient("counter", url) as client, pytest.raises(EnvironmentFailure, match="found 'hello'"):
            client.reset(3)
        sock.shutdown(socket.SHUT_RDWR)


def test_environment_that_is_not_served_there(url: str) -> None:
    with EnvClient("nosuch", url) as client, pytest.raises(EnvironmentFailure, match="agl serve"):
        client.reset(3)
    with pytest.raises(UnknownEnvironment):
        EnvClient("nosuch")


def test_wrong_arguments_are_refused_at_once(url: str) -> None:
    with pytest.raises(ValueError, match="empty list"):
        SessionPool("counter", [])
    with pytest.raises(ValueError, match="http://127"):
        SessionPool("counter", "localhost:36001")
    with pytest.raises(ValueError, match="http://127"):
        SessionPool("counter", [url, "local"])
    with pytest.raises(ValueError, match="options"):
        SessionPool("counter", url, options={"a": 1})


def test_numpy_numbers_are_numbers(url: str) -> None:
    for where in ("local", url):
        with EnvClient("counter", where) as client:
            assert client.reset(np.int64(3), seed=np.int64(2)).text == "Reach 4. Count 0, seed 2."


def test_proxy_settings_do_not_catch_this_machine(url: str, dead_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, dead_url)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with EnvClient("counter", url, retries=0) as client:
        assert client.reset(3).text.startswith("Reach 4")


def test_action_of_a_megabyte_and_one_beyond_the_servers_limit() -> None:
    with background_server(["counter"], max_body_bytes=2_000_000) as url, SessionPool("counter", url) as pool:
        handles = [f.result()[0] for f in [pool.start(3) for _ in range(4)]]
        results = [f.result() for f in [pool.step(h, "x" * 1_000_000) for h in handles]]
        assert all(r.info["invalid"] for r in results), "together they are beyond the limit: they must be sent apart"
        futures = [pool.step(handles[0], "x" * 2_000_000), pool.step(handles[1], "up")]
        with pytest.raises(EnvironmentFailure, match="at most 2000000 bytes"):
            futures[0].result()
        assert futures[1].result().info["score"] == 1
