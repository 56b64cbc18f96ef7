"""Follows the module, the phase and the step of each thread, and tags its allocations with them.

**Forward.** `torch.nn.Module.__call__` is wrapped. At every entry and exit, the wrapper stores the number of the next
node of the autograd graph, so that each node belongs to the module that created it.

**Backward.** The autograd engine is wrapped. Before the engine runs, the wrapper sets a hook on each node of the graph
at which the module changes. The engine runs the nodes of a device from the highest number down, on a separate thread,
so the hooks tag that thread.

**Recomputation** (activation checkpointing) is forward within backward.

**Evaluation** is forward of a module in evaluation mode without gradients. It begins no step.
"""

import contextlib
import functools
import sys
import threading
import types
import weakref

import torch
import torch.utils.checkpoint
from torch.optim import optimizer as _optimizers

from . import _device, _graph
from ._engine import wait_until_idle
from ._history import allocations
from ._references import References
from ._replaced import replace
from ._steps import Steps

# Numbers of nodes are forgotten in batches of this size: the graphs of long ago are gone.
_MAX_NODES = 200_000

_next_node = torch._C._autograd._get_sequence_nr
_graph_task = torch._C._current_graph_task_id
_is_compiling = torch.compiler.is_compiling if hasattr(torch.compiler, "is_compiling") else lambda: False


class Tracker:
    """Follows a program, and tags its allocations, from `start` to `stop`."""

    def __init__(self, tags, names, on_step, on_optimizer=lambda optimizer: None, steps=None):
        self.step_number = 0
        # Steps that were counted before the program ended its first.
        self.extra_steps = 0
        self.notes = {}
        # At the end of the last step that has ended before the next begins.
        self._allocations_before = None
        self._steps = steps or Steps()
        self._tags = tags
        self._names = names
        self.references = References(lambda: tags.threads.current.scope)
        self._on_step, self._on_optimizer, self.before_forward = on_step, on_optimizer, None
        self._optimizers = []
        # Those that have not finished a step: their tensors are not listed yet.
        self._unfinished = weakref.WeakSet()
        self._is_active = False
        self._is_counting = True
        self._is_optimizer_compiled = False
        self._has_owners = False
        self._devices = None
        self._forward_threads = set()
        self._entering = {}
        # The thread of the engine that last ran a node with a tag.
        self._engine_thread = None
        self._undo = []

    def start(self):
        """Begins to follow the program."""
        self._is_active = True
        self._thread_number = threading.get_ident()
        self._tags.begin_step(self.step_number)
        self._steps.begin(allocations)
        self._patch(torch.nn.Module, "__call__", self._around_call(torch.nn.Module.__call__))
        self._patch(
            torch.autograd.Variable, "_execution_engine", Engine(torch.autograd.Variable._execution_engine, self)
        )
        self._patch_checkpoints()
        for owner in (torch.nn.Module, torch.optim.Optimizer):
            self._patch(owner, "zero_grad", self._around_zero_grad(owner.zero_grad))
        for mode in (torch.no_grad, torch.inference_mode, torch.set_grad_enabled):
            self._patch(mode, "__exit__", self._around_mode(mode.__exit__))
        # Also a function, which changes the mode at once.
        self._patch(torch.set_grad_enabled, "__init__", self._around_mode(torch.set_grad_enabled.__init__))
        for handle in (
            _optimizers.register_optimizer_step_pre_hook(self._enter_optimizer),
            _optimizers.register_optimizer_step_post_hook(self._leave_optimizer),
        ):
            self._undo.append(handle.remove)

    def stop(self):
        """Undoes everything that `start` did."""
        self.leave()
        self._tags.clear()
        self._tags.close()
        # Without tags there, the engine's threads may not run yet, and must not begin as the interpreter ends.
        if self._engine_thread is not None:
            # The program's own error must not be replaced by one of a device that has failed.
            with contextlib.suppress(Exception):
                self._clear_engine()
            wait_until_idle()

    def leave(self):
        """Undoes all changes to the program, without using the device."""
        self._is_active = False
        self.references.stop()
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()

    def step(self, is_of_part=False):
        """Ends a step at a call by the program. After the first call, only such calls end steps; for a part, until
        `count_steps`."""
        if self._is_counting and not is_of_part:
            self.extra_steps = self.step_number
        self._is_counting = False
        self._end_step_here()

    def count_steps(self):
        """Makes optimizers end steps again."""
        self._is_counting = True

    def last_step(self):
        """Returns the number of the last step that has allocations. A step begun at the very end of the program may
        have none."""
        is_begun = self._allocations_before is None or allocations() != self._allocations_before
        return self.step_number if is_begun else self.step_number - 1

    def all_notes(self):
        """Yields the reasons that modules may be unknown or wrong, as sentences."""
        if self._is_optimizer_compiled:
            yield "an optimizer is compiled: its allocations have the phase 'other'"
        yield from self.notes.values()
        yield from self.references.notes()

    def hints(self, advice):
        """Returns the reasons that steps may be wrong, and the advice, as sentences."""
        return self._steps.hints(advice) if self._is_counting else ()

    def _end_step(self):
        self.step_number += 1
        self._steps.end()
        self._on_step(self.step_number - self.extra_steps)
        self._tags.begin_step(self.step_number)

    def _end_step_here(self):
        """Ends a step before any code of the next one runs."""
        self._end_step()
        self._allocations_before = allocations()

    def _patch(self, owner, name, replacement):
        replace(owner, name, getattr(owner, name), replacement, self._undo)

    # Forward.

    def _around_call(self, original):
        tags, names, threads = self._tags, self._names.by_id, self._tags.threads
        references = self.references
        is_plain = original is getattr(torch.nn.Module, "_wrapped_call_impl", None)

        def target(module):
            # What PyTorch's own wrapper calls, in whose place this one is in tracebacks.
            if is_plain:
                compiled = module._compiled_call_impl
                return module._call_impl if compiled is None else compiled
            return types.MethodType(original, module)

        # Positional: the program may have arguments of these names.
        def call(module, /, *args, **kwargs):
            if _is_compiling() or not self._is_active:
                return original(module, *args, **kwargs)
            thread = threads.current
            scope = names.get(id(module))
            if thread.is_inside:
                if scope is None:
                    scope = self._names.add(module, thread.scope, is_outermost=False)
                outer = thread.scope
                if scope is None or scope == outer:
                    return target(module)(*args, **kwargs)
                self._note_nodes(thread, scope)
                tags.set(thread, thread.phase, scope)
                references.enter(scope, args, kwargs)
                run = target(module)
                try:
                    return run(*args, **kwargs)
                finally:
                    references.leave(args)
                    self._note_nodes(thread, outer)
                    tags.set(thread, thread.phase, outer)
            is_again = _graph_task() != -1
            phase = "recompute" if is_again else _phase_of(module, thread.phase)
            if not is_again:
                self._begin_forward(thread, phase)
                # A step that begins may change names.
                scope = names.get(id(module))
            before = allocations() if scope is None or self._names.has_moved(module) else None
            if before is not None:
                scope = self._names.add(module, thread.scope, is_outermost=not is_again)
            run = target(module)
            if scope is None:
                return run(*args, **kwargs)
            first = _next_node()
            if is_again:
                with self._inside(thread, phase, scope):
                    result = run(*args, **kwargs)
            else:
                with self._inside(thread, phase, scope), references.forward(args, kwargs):
                    references.enter(scope, args, kwargs)
                    result = run(*args, **kwargs)
                    references.leave(args)
                if before is not None and allocations() == before:
                    self._names.add_idle(module)
                # The loss is computed outside of the model.
                tags.set(thread, phase, thread.scope)
                if _next_node() != first:
                    self._forward_threads.add(thread)
            return result

        return call

    def _begin_forward(self, thread, phase):
        if self.before_forward is not None:
            self.before_forward()
        if self._steps.begins_with(phase, torch.is_grad_enabled()) and self._is_counting:
            self._end_step()
        self._drop_failed_optimizers(thread)
        if self._tags.has_ranges and threading.get_ident() != self._thread_number:
            self.notes["threads"] = "PyTorch records tags of one thread: allocations of other threads have its modules"

    def _around_zero_grad(self, original):
        @functools.wraps(original)
        def zero_grad(owner, /, *args, **kwargs):
            if self._is_active and not _is_compiling():
                is_of_training = not self._tags.threads.current.optimizers and self._is_training()
                if is_of_training and self._steps.begins_with("zero_grad") and self._is_counting:
                    self._end_step()
            return original(owner, *args, **kwargs)

        return zero_grad

    def _is_training(self):
        """Returns whether a model is in training mode, or no model is known yet."""
        modes = [getattr(root, "training", True) for _, root in self._names.roots()]
        return not modes or any(modes)

    def _around_mode(self, original):
        """Ends an evaluation when gradients are enabled again."""

        @functools.wraps(original)
        def change(context, /, *args, **kwargs):
            original(context, *args, **kwargs)
            if self._is_active and not _is_compiling():
                thread = self._tags.threads.current
                if thread.phase == "eval" and not thread.is_inside and torch.is_grad_enabled():
                    self._tags.set(thread, "other", thread.scope)

        return change

    def _drop_failed_optimizers(self, thread):
        if thread.optimizers and not _is_running(thread.optimizers[-1][0]):
            # The step has raised an error, and the program goes on.
            thread.optimizers.clear()
            self._tags.set(thread, "other", "")

    @contextlib.contextmanager
    def _inside(self, thread, phase, scope):
        outer, outer_phase = thread.scope, thread.phase
        thread.is_inside = True
        self._note_nodes(thread, scope)
        self._tags.set(thread, phase, scope)
        try:
            yield
        finally:
            thread.is_inside = False
            self._note_nodes(thread, outer)
            self._tags.set(thread, outer_phase, outer)

    def _note_nodes(self, thread, scope):
        number, first_nodes, scopes = _next_node(), thread.first_nodes, thread.node_scopes
        if first_nodes[-1] == number:
            scopes[-1] = scope
            return
        first_nodes.append(number)
        scopes.append(scope)
        if len(first_nodes) > _MAX_NODES:
            del first_nodes[1 : _MAX_NODES // 2], scopes[1 : _MAX_NODES // 2]
            scopes[0] = ""

    # Activation checkpointing: calls of a checkpointed function outside modules are recomputed too.

    def _patch_checkpoints(self):
        checkpoint = torch.utils.checkpoint
        function = checkpoint.CheckpointFunction
        tracker = self

        class Reentrant(function):
            @staticmethod
            def apply(run, *args):
                return function.apply(tracker._recomputed(run), *args)

        self._patch(checkpoint, "CheckpointFunction", Reentrant)
        # The second is what `checkpoint` calls from PyTorch 2.12 on.
        for name in ("_checkpoint_without_reentrant_generator", "_checkpoint_without_reentrant_generator_impl"):
            if hasattr(checkpoint, name):
                self._patch(checkpoint, name, self._around_generator(getattr(checkpoint, name)))

    def _around_generator(self, original):
        return lambda run, /, *args, **kwargs: original(self._recomputed(run), *args, **kwargs)

    def _recomputed(self, function):
        scope = self._tags.threads.current.scope

        def run(*args, **kwargs):
            thread = self._tags.threads.current
            if _graph_task() == -1 or thread.phase == "recompute" or not self._is_active:
                return function(*args, **kwargs)
            with self._inside(thread, "recompute", scope):
                return function(*args, **kwargs)

        return run

    # Optimizers.

    def optimizers(self):
        """Returns the existing optimizers that have made a step."""
        known = (reference() for reference in self._optimizers)
        return [optimizer for optimizer in known if optimizer is not None]

    def _enter_optimizer(self, optimizer, args, kwargs):
        if _is_compiling():
            return
        thread = self._tags.threads.current
        thread.optimizers.append((id(sys._getframe(1)), thread.phase))
        if all(known is not optimizer for known in self.optimizers()):
            # Its first step may run out of memory.
            self._optimizers.append(weakref.ref(optimizer))
            self._unfinished.add(optimizer)
        self.references.note_gradients(optimizer)
        # Within backward, the module whose gradient is ready.
        self._tags.set(thread, "optimizer", thread.scope)

    def _leave_optimizer(self, optimizer, args, kwargs):
        if _is_compiling():
            # Assignments take effect when the compiled step runs; other calls would break its graph.
            self._steps.is_stepped = self._is_optimizer_compiled = True
            return
        parameters = (parameter for group in optimizer.param_groups for parameter in group["params"])
        is_counted = self._steps.note_optimizer(optimizer, any(map(_device.has, parameters)))
        thread = self._tags.threads.current
        outer_phase = thread.optimizers.pop()[1] if thread.optimizers else "other"
        # Outside of modules, forward is over.
        is_nested = thread.optimizers or thread.is_inside or _graph_task() != -1
        self._tags.set(thread, outer_phase if is_nested else "other", thread.scope)
        if optimizer in self._unfinished:
            self._unfinished.discard(optimizer)
            with contextlib.suppress(Exception):
                self._on_optimizer(optimizer)
        if is_counted and not is_nested and self._is_counting and self._steps.ends_with_optimizer():
            self._end_step_here()

    # Backward.

    def run_backward(self, engine, outputs, args, kwargs):
        """Runs the engine on a graph, with nodes that tag their allocations."""
        if _is_compiling() or not self._is_active:
            return engine.run_backward(outputs, *args, **kwargs)
        # gradients, keep_graph, create_graph, inputs
        gradients, keeps, creates, inputs = (args + (None,) * 4)[:4]
        tags, thread = self._tags, self._tags.threads.current
        nodes = _graph.graph(outputs)
        handles = self._hook_nodes(thread, outputs, nodes, is_partial=bool(inputs))
        is_nested = thread.is_inside or _graph_task() != -1
        if not is_nested:
            self._steps.note_backward()
        self._drop_failed_optimizers(thread)
        is_inside, outer, outer_phase = thread.is_inside, thread.scope, thread.phase
        # Nodes of the CPU run on this thread.
        thread.is_inside = False
        tags.set(thread, "backward", outer)
        try:
            self.references.backward(nodes)
            results = engine.run_backward(outputs, *args, **kwargs)
            if creates:
                self._note_owner(outputs, gradients, nodes, inputs, results)
            return results
        finally:
            thread.is_inside = is_inside
            self._note_nodes(thread, outer)
            base = "optimizer" if thread.optimizers else "other"
            tags.set(thread, *((outer_phase, outer) if is_nested else (base, "")))
            if keeps or creates or not nodes:
                # Hooks on other graphs end with them.
                for handle in handles:
                    handle.remove()

    def _note_owner(self, outputs, gradients, nodes, inputs, results):
        """Records that the engine's thread created the graph of the gradients."""
        known = set(nodes).union(_graph.graph(tensor for tensor in gradients or () if tensor is not None))
        made = [tensor for tensor in results if isinstance(tensor, torch.Tensor)]
        if not inputs:
            leaves = {after for node in nodes for after, _ in node.next_functions if hasattr(after, "variable")}
            made += [leaf.variable.grad for leaf in leaves if leaf.variable.grad is not None]
        _graph.set_owner(_graph.graph(made, known), self._engine_thread)
        self._has_owners = True

    def _hook_nodes(self, thread, outputs, nodes, is_partial):
        """Sets hooks on the nodes of a graph so that they tag their allocations. Returns the handles of the hooks.

        In a partial graph, or if nodes run on several threads, each node gets a hook, since a node may run without the
        node before it.
        """
        if not nodes:
            return [leaf.register_prehook(self._enter(thread.scope)) for leaf in _graph.leaves(outputs)]
        first_nodes, scopes = thread.first_nodes, thread.node_scopes
        if self._forward_threads - {thread} and _graph_task() == -1:
            # Nodes that another thread made have that thread's numbers.
            self.notes["backward"] = "forward ran on several threads: backward has no modules"
            first_nodes, scopes = [0], [""]
        is_each = is_partial or self._has_owners or self._has_several_devices(outputs) or _graph.copies_to_cpu(nodes)
        handles, last, at = [], None, len(first_nodes) - 1
        for number, row in sorted([(node._sequence_nr(), row) for row, node in enumerate(nodes)], reverse=True):
            while at > 0 and first_nodes[at] > number:
                at -= 1
            scope = scopes[at]
            if self._has_owners:
                owner = _graph.owner(nodes[row])
                scope = scope if owner is None else owner.scope_of(number)
            if scope != last or is_each:
                last = scope
                handles.append(nodes[row].register_prehook(self._enter(scope)))
        return handles

    def _enter(self, scope):
        enter = self._entering.get(scope)
        if enter is None:
            enter = self._entering[scope] = self._enter_node(scope)
        return enter

    def _enter_node(self, scope):
        tags = self._tags

        # Must return None: anything else would replace the gradients.
        def enter(gradients):
            if self._is_active:
                self._engine_thread = thread = tags.threads.current
                self._note_nodes(thread, scope)
                tags.set(thread, "backward", scope)

        return enter

    def _has_several_devices(self, outputs):
        if self._devices is None:
            parameters = (parameter for _, root in self._names.roots() for parameter in root.parameters())
            self._devices = {parameter.device for parameter in parameters}
        devices = {output.device for output in outputs if isinstance(output, torch.Tensor)}
        return len(devices | self._devices) > 1

    def _clear_engine(self):
        """Clears the tags of the engine's threads, which can be done only on these threads."""
        with torch.inference_mode(False), torch.enable_grad():
            for device in _device.in_use():
                # Empty: nothing is allocated.
                empty = torch.empty(0, device=f"{_device.name()}:{device}", requires_grad=True)
                output = empty.view_as(empty)
                output.grad_fn.register_prehook(lambda gradients: self._tags.clear())
                # `torch.autograd.grad` imports the compiler, for seconds, which changes the exit status of an interrupt.
                run = torch.autograd.Variable._execution_engine.run_backward
                run((output,), (empty.detach(),), False, False, (empty,), True, accumulate_grad=False)


class Engine:
    """A wrapper of the autograd engine that runs backward through the tracker."""

    def __init__(self, engine, tracker):
        self._engine, self._tracker = engine, tracker

    def run_backward(self, outputs, /, *args, **kwargs):
        return self._tracker.run_backward(self._engine, outputs, args, kwargs)

    def __getattr__(self, name):
        return getattr(self._engine, name)


def _phase_of(module, phase):
    """Returns the phase of a module that is called outside of other modules, given the phase before the call."""
    if torch.is_grad_enabled():
        return "forward"
    # A loss, a metric or a transform of an evaluation is in training mode all the same.
    is_evaluating = phase == "eval" or not getattr(module, "training", True) or next(module.parameters(), None) is None
    return "eval" if is_evaluating else "forward"


def _is_running(frame_id):
    """Returns whether a frame is on the stack of this thread."""
    frame = sys._getframe(1)
    while frame is not None:
        if id(frame) == frame_id:
            return True
        frame = frame.f_back
    return False
