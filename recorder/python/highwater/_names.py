"""Names modules by their paths in the model: `blocks.3.attn.qkv`."""

import weakref

import torch

from . import _device

# Names of attributes under which wrappers keep what they wrap: no part of the model's own names.
_WRAPPED = {"_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module", "_forward_module"}
# Wrappers that keep the model as `module`.
_PARALLEL = {"DistributedDataParallel", "DataParallel", "FullyShardedDataParallel", "DeepSpeedEngine"}


class ModuleNames:
    """The names of the modules of one recording.

    `models` are pairs of name and module. These modules keep their names even inside other modules. Without `models`,
    the model is the first module with parameters that is called outside of other modules, unless it runs only on the
    host. Further models are named by their types. With `depth`, deeper modules have the name of the module at that
    depth that contains them.
    """

    def __init__(self, models=(), depth=None):
        self.by_id = {}
        self._compiled = set()
        self._depth = depth
        self._references = {}
        self._roots = []
        self._given = {}
        # Models that have allocated nothing on a device.
        self._idle = set()
        self.give(models)

    def give(self, models):
        """Names models, given as pairs of name and module. A name that is already in use is changed."""
        self._given.update({id(root): name for name, root in models})
        for name, root in models:
            is_taken = any(name == known and root is not other for known, other in self.roots())
            self._add_root(self._root_name(root) if is_taken else name, root)

    def restart(self):
        """Removes the names of all models except the given ones. The next model that is called counts as the first."""
        given = [(name, root) for name, root in self.roots() if id(root) in self._given]
        for known in (self.by_id, self._references, self._compiled, self._roots, self._idle):
            known.clear()
        self.give(given)

    def roots(self):
        """Returns the models that still exist, with their names."""
        self._roots = [(name, reference) for name, reference in self._roots if reference() is not None]
        return [(name, reference()) for name, reference in self._roots]

    def trees(self):
        """Returns the modules of each model with their names, by name of the model."""
        return {name: self._tree(name, root) for name, root in self.roots()}

    def _tree(self, name, root):
        modules = list(root.modules())
        if any(id(module) not in self.by_id for module in modules):
            # Added since, and not called yet.
            self._name_tree(name, root)
        return [(module, self.by_id.get(id(module), "")) for module in modules]

    def add(self, module, around, is_outermost):
        """Names a module at its first call, inside the module named `around`.

        Returns None for graphs made by a compiler, which are part of the compiled module.
        """
        if isinstance(module, torch.fx.GraphModule) and not is_outermost:
            return None
        self._idle.discard(id(module))
        try:
            self._add(module, around, is_outermost)
        except Exception:  # noqa: BLE001
            # Modules may override what lists their parts.
            self._set(module, self._inside(around, module))
        return self.by_id[id(module)]

    def add_idle(self, root):
        """Names a model that allocates nothing on a device by its class. Another model then counts as the first."""
        if any(known is root and not name for name, known in self.roots()) and id(root) not in self._given:
            self._add_root(self._root_name(root, is_model=False), root)
            self._idle.add(id(root))

    def has_moved(self, root):
        """Returns whether a model that allocated nothing on a device has moved there."""
        return id(root) in self._idle and any(map(_device.has, root.parameters()))

    def compiled_names(self):
        """Returns the names of the compiled modules. Their submodules have the same names."""
        names = set(self._compiled)
        for _, root in self.roots():
            for module in root.modules():
                if module.__dict__.get("_compiled_call_impl") is not None:
                    names.add(self.by_id.get(id(module), ""))
        return sorted(names)

    def _add(self, module, around, is_outermost):
        parts = module.__dict__.get("_modules", {})
        inner = parts.get("_orig_mod") or (parts.get("module") if type(module).__name__ in _PARALLEL else None)
        if inner is not None and id(inner) in self.by_id:
            self._set(module, self.by_id[id(inner)])
            if "_orig_mod" in parts:
                self._compiled.add(self.by_id[id(module)])
        elif is_outermost and (parts or any(True for _ in module.parameters())):
            self._add_root(self._root_name(module), module)
        elif is_outermost:
            # A loss or an activation: all of a type have one name.
            self._set(module, type(module).__name__)
        else:
            self._search(module)
        if id(module) not in self.by_id:
            # Not an attribute of the module that calls it.
            self._set(module, self._inside(around, module))

    def _add_root(self, name, root):
        inside = {id(module) for module in root.modules()}
        # Those that were called before the model that they are part of.
        is_given = self._given.__contains__
        self._roots = [row for row in self._roots if is_given(id(row[1]())) or id(row[1]()) not in inside]
        self._roots.append((name, weakref.ref(root)))
        self._name_tree(name, root)

    def _name_tree(self, prefix, root):
        is_parallel = type(root).__name__ in _PARALLEL
        # Given modules within this one, by their paths.
        given = {}
        for path, module in root.named_modules():
            if module is not root and id(module) in self._given:
                given[path] = self._given[id(module)]
            outer, start = path, prefix
            while outer and outer not in given:
                outer = outer.rpartition(".")[0]
            if outer:
                path, start = path[len(outer) + 1 :], given[outer]
            parts = [part for part in path.split(".") if part and part not in _WRAPPED]
            if is_parallel and not outer and parts and parts[0] == "module":
                del parts[0]
            name = self._cut(".".join(filter(None, [start, *parts])))
            # Of depth 0, all are the model's.
            self._set(module, name or _class_name(root))
            if "_orig_mod" in module.__dict__.get("_modules", {}):
                self._compiled.add(name)

    def _search(self, module):
        """Names a module that was added to its model after naming, and the modules around it that have moved."""
        for name, root in self.roots():
            if any(known is module for known in root.modules()):
                self._name_tree(name, root)
                return

    def _root_name(self, root, is_model=True):
        inside = {id(module) for module in root.modules()}.difference(self._given)
        others = [(name, known) for name, known in self.roots() if id(known) not in inside]
        if is_model and all(name for name, _ in others) and any(True for _ in root.parameters()):
            return ""
        # The model without a name is called by its class.
        taken = {name or _class_name(known) for name, known in others}
        name, count = type(root).__name__, 1
        while name in taken:
            count += 1
            name = f"{type(root).__name__}_{count}"
        return name

    def _inside(self, around, module):
        return self._cut(f"{around}.{type(module).__name__}".lstrip(".")) or around

    def _cut(self, path):
        return ".".join(path.split(".")[: self._depth])

    def _set(self, module, name):
        number = id(module)
        # The model itself has no path.
        self.by_id[number] = name or _class_name(module)
        if number not in self._references:
            # The number may be another module's after this one is gone.
            self._references[number] = weakref.ref(module, lambda _: self._forget(number))

    def _forget(self, number):
        self.by_id.pop(number, None)
        self._references.pop(number, None)
        self._given.pop(number, None)
        self._idle.discard(number)


def _class_name(module):
    """Returns the class of a module, or of the module that it wraps."""
    parts = module.__dict__.get("_modules", {})
    inner = parts.get("_orig_mod")
    if inner is None and type(module).__name__ in _PARALLEL:
        inner = parts.get("module")
    return type(module).__name__ if inner is None else _class_name(inner)
