"""ForkSafeLock: reentrant, renewed in a child, never copied."""

import copy
import os
import pickle
import signal
import threading

from faiss_prh._common.locks import ForkSafeLock


def exit_code_of_child(work):
    """Fork, run `work` in the child, and return what the child ended with; minus a signal if it had to be ended."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(10)
        os._exit(0 if work() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def taken(lock):
    with lock, lock:
        return True


def is_free(lock):
    """Whether another thread gets it."""
    found = []
    thread = threading.Thread(target=lambda: found.append(taken(lock)), daemon=True)
    thread.start()
    thread.join(0.2)
    return bool(found)


def test_one_thread_holds_it_as_often_as_it_likes():
    lock = ForkSafeLock()
    with lock:
        with lock:
            assert not is_free(lock)
        assert not is_free(lock)
    assert is_free(lock)


def test_a_child_does_not_wait_for_a_thread_that_it_does_not_have():
    lock = ForkSafeLock()
    held, done = threading.Event(), threading.Event()

    def hold():
        with lock:
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert held.wait(10)
        assert exit_code_of_child(lambda: taken(lock)) == 0
        assert not is_free(lock)  # here, it is still held
    finally:
        done.set()
        thread.join()
    assert is_free(lock)


def test_a_child_forked_by_the_holder_still_holds_it():
    lock = ForkSafeLock()
    with lock:

        def work():
            still_held = not is_free(lock)
            lock.__exit__()
            return still_held and is_free(lock)

        assert exit_code_of_child(work) == 0


def test_copies_are_locks_of_their_own():
    lock = ForkSafeLock()
    for made in (copy.copy(lock), copy.deepcopy(lock), pickle.loads(pickle.dumps(lock))):
        with lock:
            assert is_free(made)
