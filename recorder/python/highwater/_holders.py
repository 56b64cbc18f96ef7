"""Finds the variables and containers that refer to tensors outside of models and optimizers."""

import collections
import contextlib
import gc
import inspect
import os
import random
import sys
import time
import types

import torch

from ._shapes import shape_text
from ._tensors import storages

# Each level asks the whole heap once. The time is this thread's, so that a busy machine finds as much.
_MAX_SECONDS, _MAX_LEVELS = 2.0, 8
# Tensors that are followed, chosen at random: the others are mostly in the same containers.
_MAX_FOLLOWED = 100
# Objects that are asked for at once: the time of a level grows with them.
_MAX_ASKED = 128
_MAX_HOLDERS = 10
# A tensor that only PyTorch's own code refers to.
_NOTHING = "PyTorch itself, as in a graph"
_FOLDER = os.path.dirname(sys._getframe().f_code.co_filename)
# Of the frame, of a variable and of the call that counts them.
_REFERENCES_OF_FRAME = 3
_SEQUENCES = (list, tuple, set, frozenset, collections.deque)


def holders(known):
    """Returns rows for the tensors with device memory, except at the addresses `known`. A row has the holder, the
    number of tensors, their bytes, and the number of tensors with a graph, which keeps more memory live.
    """
    search = _Search(known)
    try:
        return search.rows()
    finally:
        search.clear()


class _Search:
    def __init__(self, known):
        self._end = time.thread_time() + _MAX_SECONDS
        # Objects of this class are no holders.
        self._tensors = [one for one in gc.get_objects() if _is_held(one, known)]
        self._names, self._modules = _named_objects(), _module_dicts()
        self._parents = collections.defaultdict(list)
        self._seen = []
        # Whether time or levels were too few, so that unnamed objects may have a name.
        self._is_cut = False

    def clear(self):
        """Forgets all objects."""
        for held in (self._tensors, self._names, self._modules, self._parents, self._seen):
            held.clear()

    def rows(self):
        """Returns the rows, ordered by number of graphs and then by bytes, largest first."""
        # Not by a step, with which what a loop makes in turn would be skipped; with random numbers of our own.
        followed = random.Random(0).sample(self._tensors, min(len(self._tensors), _MAX_FOLLOWED))
        self._follow(followed)
        found = {}
        for tensor in followed:
            *texts, container = self._holder_of(tensor)
            found.setdefault(tuple(texts), (container, []))[1].append(tensor)
        rows = []
        for (text, size), (container, tensors) in found.items():
            # All of a container, of which some were followed.
            ids = _ids(container)
            inside = [one for one in self._tensors if id(one) in ids]
            tensors = max(inside, tensors, key=len)
            sizes = {storage.data_ptr(): storage.nbytes() for one in tensors for storage in storages(one)}
            graphs = sum(map(_has_graph, tensors))
            words = ", ".join(filter(None, [size, _kind(tensors)]))
            text += f" ({words})" if words else ""
            rows.append({"holder": text, "tensors": len(tensors), "bytes": sum(sizes.values()), "graphs": graphs})
        rows.sort(key=lambda row: (row["holder"].startswith(_NOTHING), -row["graphs"], -row["bytes"]))
        return rows[:_MAX_HOLDERS]

    def _follow(self, objects):
        """Finds the objects that refer to `objects`, directly or not, up to named objects."""
        seen = {id(one) for one in objects}
        for _ in range(_MAX_LEVELS):
            asked = [one for one in objects if not self._is_root(one)]
            if not asked:
                return
            if time.thread_time() > self._end:
                break
            self._is_cut |= len(asked) > _MAX_ASKED
            asked = asked[:_MAX_ASKED]
            children = {id(one) for one in asked}
            own = {id(one) for one in (asked, objects, self._tensors, self._seen, *self._seen, self.__dict__)}
            own.update(map(id, self._parents.values()), [id(self._parents)])
            objects = []
            for parent in gc.get_referrers(*asked):
                if id(parent) in own or _is_of_package(parent):
                    continue
                for child in gc.get_referents(parent):
                    if id(child) in children and len(self._parents[id(child)]) < 8:
                        self._parents[id(child)].append(parent)
                if id(parent) not in seen:
                    seen.add(id(parent))
                    objects.append(parent)
            self._seen.append(objects)
        self._is_cut = True

    def _is_root(self, one):
        return id(one) in self._names or id(one) in self._modules

    def _holder_of(self, tensor):
        """Returns the holder of a tensor as text, its size as text, and the nearest container of the tensor or None."""
        queue, came_from = collections.deque([tensor]), {id(tensor): None}
        while queue:
            one = queue.popleft()
            if self._is_root(one):
                path = [one]
                while came_from[id(path[-1])] is not None:
                    path.append(came_from[id(path[-1])])
                return *self._text(path), next((each for each in reversed(path) if _is_container(each)), None)
            for parent in self._parents.get(id(one), ()):
                if id(parent) not in came_from:
                    came_from[id(parent)] = one
                    queue.append(parent)
        kinds = [type(parent).__name__ for parent in self._parents.get(id(tensor), ())]
        if self._is_cut:
            return "not found in time", "", None
        return f"no variable, but a {kinds[0]}, as in a reference cycle" if kinds else _NOTHING, "", None

    def _text(self, path):
        """Returns the path from a named object to a tensor as texts, such as `trainer.history` and `list of 12`."""
        text, where = self._names.get(id(path[0]), ("", ""))
        size, largest = "", 0
        for holder, held in zip(path, path[1:]):
            if id(holder) in self._modules:
                text = f"{self._modules[id(holder)]}.{_key_of(holder, held)}"
            elif isinstance(holder, dict) or _is_plain_object(holder):
                # Of a container of tensors, which one it is does not matter.
                is_one_of_many = held is path[-1] and isinstance(holder, dict) and len(holder) > 1
                text += "" if is_one_of_many else _step(holder, held, path)
            elif isinstance(holder, types.FunctionType):
                text += f" → {'closure' if holder.__closure__ else 'defaults'} of {holder.__qualname__}"
            elif isinstance(holder, (types.FrameType, types.GeneratorType, types.CoroutineType)):
                frame = holder if isinstance(holder, types.FrameType) else getattr(holder, "gi_frame", None)
                frame = frame or getattr(holder, "cr_frame", None)
                code = holder.f_code if frame is holder else getattr(holder, "gi_code", None) or holder.cr_code
                text += f" → {_key_of(_locals(frame), held) or '…'} in {code.co_name}()"
            is_own = isinstance(holder, dict) and text.endswith(f".{_key_of(holder, held)}")
            if _is_container(holder) and not is_own and len(holder) > largest:
                largest = len(holder)
                size = f"{type(holder).__name__} of {largest:,}"
        return text + where, size


def _is_held(one, known):
    try:
        if not issubclass(type(one), torch.Tensor):
            return False
        found = [storage.data_ptr() for storage in storages(one)]
    except Exception:  # noqa: BLE001
        # Of a subclass that overrides what tells its memory.
        return False
    return any(address and address not in known for address in found)


def _named_objects():
    """Returns the objects to which variables refer, in running functions and in the main module. Each has the
    variable's name and location."""
    names = {}
    for frame in sys._current_frames().values():
        while frame is not None:
            if os.path.dirname(frame.f_code.co_filename) != _FOLDER:
                # Not those of pytest's assertions.
                for name, value in ((name, value) for name, value in _locals(frame).items() if name.isidentifier()):
                    names.setdefault(id(value), (name, f" in {frame.f_code.co_name}()"))
            frame = frame.f_back
    for name, value in list(vars(sys.modules["__main__"]).items()):
        names[id(value)] = (name, "")
    for always in (None, True, False, (), ""):
        names.pop(id(always), None)
    return names


def _locals(frame):
    """Returns the variables of a running function."""
    # A debugger writes back the values that it has read.
    if frame is None or not frame.f_code.co_flags & inspect.CO_OPTIMIZED or frame.f_trace is not None:
        return {}
    if sys.version_info >= (3, 13):
        return dict(frame.f_locals)
    found = frame.f_locals
    variables = dict(found)
    # The frame's one dict would keep alive what the function deletes. The program may have it too, from `locals()`.
    if sys.getrefcount(found) <= _REFERENCES_OF_FRAME:
        found.clear()
    return variables


def _module_dicts():
    # Not by an attribute, for which some modules import themselves.
    modules = [(name, one) for name, one in list(sys.modules.items()) if isinstance(one, types.ModuleType)]
    return {id(object.__getattribute__(module, "__dict__")): name for name, module in modules}


def _is_of_package(one):
    if isinstance(one, types.FrameType):
        return os.path.dirname(one.f_code.co_filename) == _FOLDER
    return str(getattr(type(one), "__module__", "")).partition(".")[0] == __package__


def _is_container(one):
    return isinstance(one, (*_SEQUENCES, dict)) and not isinstance(one, torch.Size)


def _is_plain_object(one):
    plain = (*_SEQUENCES, types.CellType, types.FunctionType, types.FrameType, types.GeneratorType, types.CoroutineType)
    return not isinstance(one, plain)


def _kind(tensors):
    """Returns the most frequent shape and dtype of the tensors, such as `[32, 1024] float32`."""
    kinds = collections.Counter()
    for one in tensors:
        # A nested tensor has no shape, and a subclass may have none either.
        with contextlib.suppress(Exception):
            kinds[shape_text(one)] += 1
    kind = next((kind for kind, _ in kinds.most_common(1)), "")
    return f"{kind} and others" if len(kinds) > 1 else kind


def _has_graph(tensor):
    try:
        return tensor.grad_fn is not None
    except Exception:  # noqa: BLE001
        # Of a view that was changed in place, or of a subclass.
        return True


def _ids(container):
    if container is None:
        return set()
    return {id(one) for one in (container.values() if isinstance(container, dict) else container)}


def _key_of(mapping, value):
    """Returns a dict key as text. For objects that may be expensive to print, such as tensors, returns the type."""
    keys = (key for key, known in list(mapping.items()) if known is value)
    key = next(keys, "")
    return str(key) if isinstance(key, (str, int)) else type(key).__name__


def _is_numbered(mapping):
    """Returns whether the keys of a dict are numbers, like the indices of a list."""
    return len(mapping) > 1 and all(isinstance(key, int) for key in list(mapping))


def _step(holder, held, path):
    """Returns the path from an object or dict to an object in it, as text."""
    if not isinstance(holder, dict):
        try:
            name = _key_of(vars(holder), held)
        except TypeError:
            return ""
        return f".{name}" if name else ""
    owner = next((one for one, inner in zip(path, path[1:]) if inner is holder), None)
    key = _key_of(holder, held)
    # Of a class, `__dict__` is another view of the dict.
    if isinstance(owner, type) or (owner is not None and getattr(owner, "__dict__", None) is holder):
        return f".{key}"
    return f"[{key}]" if len(holder) < 100 and not _is_numbered(holder) else ""
