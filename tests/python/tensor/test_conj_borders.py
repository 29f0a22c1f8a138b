# SPDX-License-Identifier: Apache-2.0
"""Conjugate and negative views cross every border of the library as values: calls that write, files, other libraries, collectives, optimizers.
A border resolves them, writes back, or refuses, as PyTorch 2.15 does where it is right."""
import base64
import copy
import io
import os
import pickle
import tempfile
import unittest
import zlib
from multiprocessing.reduction import ForkingPickler

import phlox as torch
import phlox.distributed as dist
import phlox.distributed.checkpoint as dcp
import phlox.multiprocessing
import samples
from phlox.nn.parallel import comm
from phlox.utils.data import DataLoader, TensorDataset

DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()
VALUES = [[1 + 2j, 3 - 1j], [0.5 + 0.25j, -2 - 4j]]


def conjugate(like):
    """A conjugate view with the values of a complex tensor."""
    return like.detach().resolve_conj().conj_physical().clone().conj()


def negative(like):
    """A negative view with the values of a real tensor. It is contiguous, unlike the imaginary part of a conjugate view."""
    made = -like.detach().resolve_neg().contiguous()
    torch._utils.set_tensor_metadata(made, {"neg": True})
    return made


def view(like):
    """A view with the values of a tensor: conjugate, negative, or the tensor itself if its dtype has neither."""
    if like.is_complex(): return conjugate(like)
    return negative(like) if like.dtype in (torch.float32, torch.float64) else like.clone()


def is_view(t):
    return t.is_conj() or t.is_neg()


def outputs(made):
    return list(made) if isinstance(made, (tuple, list)) else [made]


def arguments(sample, dtype):
    args, keywords = samples.arguments(torch, *sample, dtype)
    if dtype == "complex128": args = [a * (1 + 0.25j) if isinstance(a, torch.Tensor) and a.is_complex() else a for a in args]
    return args, keywords


def call(function, args, keywords, **more):
    """The result of a call at a seed, or None if the call is refused."""
    torch.manual_seed(7)
    try: return function(*args, **keywords, **more)
    except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError): return None


@unittest.skipUnless(samples.os.path.exists(samples.PATH), "there are no samples")
class Ops(unittest.TestCase):
    """Walks over the samples of all ops. `empty` has no values, and as_strided_ reads the gaps of the memory."""
    def assertSame(self, made, expected, about):
        made = made.resolve_conj().resolve_neg()
        same = made.dtype == expected.dtype and made.shape == expected.shape and torch.allclose(made, expected, equal_nan=True)
        self.assertTrue(same, (*about, made, expected))

    def walk(self):
        for op, name, sample in samples.samples():
            if op in ("empty", "as_strided"): continue
            for dtype in ("float64", "complex128"): yield op, name, sample, dtype

    def test_out_forms_write_values_through_views(self):
        seen = set()
        for op, name, sample, dtype in self.walk():
            function = getattr(torch, name, None)
            if function is None: continue
            expected = call(function, *arguments(sample, dtype))
            if expected is None or not all(isinstance(t, torch.Tensor) for t in outputs(expected)): continue
            plain = [torch.empty_like(t) for t in outputs(expected)]
            if call(function, *arguments(sample, dtype), out=plain[0] if len(plain) == 1 else tuple(plain)) is None: continue
            outs = [view(torch.zeros_like(t)) for t in outputs(expected)]
            if not any(map(is_view, outs)): continue
            call(function, *arguments(sample, dtype), out=outs[0] if len(outs) == 1 else tuple(outs))
            for out, t in zip(outs, plain): self.assertSame(out, t, (op, dtype, sample))
            seen.add((op, dtype))
        self.assertGreater(len(seen), 350)

    def test_in_place_forms_write_values_through_views(self):
        seen = set()
        for op, name, sample, dtype in self.walk():
            args, keywords = arguments(sample, dtype)
            method = getattr(torch.Tensor, name + "_", None)
            if method is None or not args or not isinstance(args[0], torch.Tensor): continue
            self_view = view(args[0])
            if not is_view(self_view) or call(method, args, keywords) is None: continue
            call(method, [self_view, *args[1:]], keywords)
            self.assertSame(self_view, args[0], (op, dtype, sample))
            seen.add((op, dtype))
        self.assertGreater(len(seen), 200)

    def test_arguments_changed_by_an_op_are_written_through_views(self):
        for device in DEVICES:
            grad, found, scale = negative(torch.ones(2, device=device)), torch.zeros(1, device=device), torch.full((1,), 0.5, device=device)
            torch._amp_foreach_non_finite_check_and_unscale_([grad], found, scale)
            self.assertEqual((grad.tolist(), grad.is_neg()), ([0.5, 0.5], True))
            mean, var = negative(torch.zeros(2, device=device)), negative(torch.ones(2, device=device))
            torch.nn.functional.batch_norm(torch.tensor([[1., 2.], [3., 6.]], device=device), mean, var, training=True, momentum=0.5)
            self.assertEqual((mean.tolist(), var.tolist()), ([1, 2], [1.5, 4.5]))

    def test_results_keep_the_identity_of_views(self):
        for x in (conjugate(torch.tensor(VALUES)), negative(torch.ones(2))):
            self.assertIs(x.mul_(2), x)
            self.assertIs(torch.add(x, x, out=x), x)


def saved(obj, **options):
    file = io.BytesIO()
    torch.save(obj, file, **options)
    return file.getvalue()


def loaded(data, **options):
    return torch.load(io.BytesIO(data), **options)


def deepcopied_module(t):
    module = torch.nn.Module()
    module.p, module.b = torch.nn.Parameter(t), torch.nn.Buffer(t)
    module = copy.deepcopy(module)
    return torch.cat([module.p.detach(), module.b])


def through_checkpoint(t):
    with tempfile.TemporaryDirectory() as folder:
        dcp.save({"t": t}, checkpoint_id=folder)
        into = view(torch.zeros_like(t).resolve_conj().resolve_neg())
        dcp.load({"t": into}, checkpoint_id=folder)
    return into


def through_safetensors(t):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "t.safetensors")
        torch.save([t, torch.nn.Parameter(t)], path)
        plain, parameter = torch.load(path)
    return plain if torch.equal(plain, parameter) else parameter.detach()


def through_collective(function):
    def cross(t):
        out = view(torch.zeros_like(t).resolve_conj().resolve_neg())
        function(out, t)
        return out
    return cross


def in_place(function):
    return lambda t: (function(t), t)[1]


# Borders that hand values over.
CROSSED = {
    "numpy force": lambda t: torch.from_numpy(t.numpy(force=True)), "tolist": lambda t: torch.tensor(t.tolist()),
    "item": lambda t: torch.stack([torch.tensor(x.item(), dtype=t.dtype) for x in t.flatten()]).reshape(t.shape),
    "pickle": lambda t: pickle.loads(pickle.dumps(t)), "copy": copy.copy, "deepcopy": copy.deepcopy, "module": deepcopied_module,
    "file": lambda t: loaded(saved(t)), "file with weights_only=False": lambda t: loaded(saved([t]), weights_only=False)[0],
    "old file": lambda t: loaded(saved(t, _use_new_zipfile_serialization=False)),
    "file of a parameter": lambda t: loaded(saved(torch.nn.Parameter(t))).detach(),
    "file of a part": lambda t: torch.stack([loaded(saved(row)) for row in t]),
    "checkpoint into a view": through_checkpoint,
    "safetensors": through_safetensors, "message": lambda t: pickle.loads(ForkingPickler.dumps(t)),
    "message of a parameter": lambda t: pickle.loads(ForkingPickler.dumps(torch.nn.Parameter(t))).detach(),
    "loader": lambda t: next(iter(DataLoader(TensorDataset(t), batch_size=len(t))))[0],
    "pinned": lambda t: t if t.is_cuda else t.pin_memory(), "cpu": lambda t: t.cpu(), "data": lambda t: (p := torch.nn.Parameter(t * 0), setattr(p, "data", t), p.data)[2],
    "copy_ into a view": lambda t: view(t * 0).copy_(t), "set_grad": lambda t: (p := torch.nn.Parameter(t * 0), p.backward(t), p.grad)[2],
    "vector": lambda t: torch.nn.utils.parameters_to_vector([torch.nn.Parameter(t)]).detach().reshape(t.shape),
    "foreach": lambda t: torch._foreach_mul([t], 1)[0], "foreach in place": in_place(lambda t: torch._foreach_mul_([t], 1)),
    "foreach copy": lambda t: (into := view(t * 0), torch._foreach_copy_([into], [t]))[0],
}
COLLECTIVES = {
    "all_reduce": in_place(lambda t: dist.all_reduce(t)), "broadcast": in_place(lambda t: dist.broadcast(t, 0)), "reduce": in_place(lambda t: dist.reduce(t, 0)),
    "async all_reduce": in_place(lambda t: dist.all_reduce(t, async_op=True).wait()), "coalesced": in_place(lambda t: dist.all_reduce_coalesced([t])),
    "all_gather": through_collective(lambda out, t: dist.all_gather([out], t)), "gather": through_collective(lambda out, t: dist.gather(t, [out])),
    "all_gather_into_tensor": through_collective(lambda out, t: dist.all_gather_into_tensor(out, t)), "scatter": through_collective(lambda out, t: dist.scatter(out, [t])),
    "reduce_scatter": through_collective(lambda out, t: dist.reduce_scatter(out, [t])), "all_to_all": through_collective(lambda out, t: dist.all_to_all([out], [t])),
    "reduce_scatter_tensor": through_collective(lambda out, t: dist.reduce_scatter_tensor(out, t)),
    "all_to_all_single": through_collective(lambda out, t: dist.all_to_all_single(out, t)),
    "object": lambda t: (objects := [None], dist.all_gather_object(objects, t), objects[0])[2],
}
# Borders that refuse, with PyTorch's errors.
REFUSED = {
    "numpy": (lambda t: t.numpy(), RuntimeError, "Can't call numpy\\(\\) on Tensor that has {} bit set"),
    "asarray": (lambda t: t.__array__(), RuntimeError, "Can't call numpy\\(\\) on Tensor that has {} bit set"),
    "__dlpack__": (lambda t: t.__dlpack__(), BufferError, "Can't export tensors with the {} bit set"),
    "to_dlpack": (lambda t: torch.utils.dlpack.to_dlpack(t), BufferError, "Can't export tensors with the {} bit set"),
    "from_dlpack": (torch.from_dlpack, BufferError, "Can't export tensors with the {} bit set"),
    "view of bits": (lambda t: t.view(torch.uint8), RuntimeError, "torch.Tensor.view is not supported for .*{}.* when converting to a different dtype"),
    "view of the same dtype": (lambda t: t.view(t.dtype), RuntimeError, "torch.Tensor.view is not supported for .*{}"),
}


class Borders(unittest.TestCase):
    """Walks over the borders of the library, for conjugate and negative views on each device."""
    def views(self):
        for device in DEVICES:
            for like in (torch.tensor(VALUES), torch.tensor(VALUES).real): yield device, like, lambda: view(like.to(device))

    def assertCrosses(self, borders):
        for device, like, make in self.views():
            for name, cross in borders.items():
                with self.subTest(border=name, device=device, dtype=like.dtype):
                    made = cross(make()).cpu().resolve_conj().resolve_neg()
                    if name == "module": made = made[:2] if torch.equal(made[:2], made[2:]) else made
                    self.assertEqual(made.tolist(), like.tolist())

    def test_values_cross(self):
        if not torch.cuda.is_available(): self.skipTest("pinned memory requires a device")
        try: import numpy
        except ImportError: self.skipTest("numpy is not installed")
        self.assertCrosses(CROSSED)

    @unittest.skipUnless(dist.is_gloo_available(), "the gloo engine is not built")
    @unittest.skipIf(torch.cuda.is_available() and torch.cuda._backend_name() == "cuda", "GPU tensors need NCCL")
    def test_collectives_exchange_values(self):
        with tempfile.TemporaryDirectory() as folder:
            dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
            try: self.assertCrosses(COLLECTIVES)
            finally: dist.destroy_process_group()

    def test_raw_memory_is_refused(self):
        for device, like, make in self.views():
            for name, (cross, error, text) in REFUSED.items():
                if device == "cuda" and "array" in name or name == "numpy": continue
                bit = ("conjugat" if "view" in name else "conjugate") if like.is_complex() else "negative"
                with self.subTest(border=name, device=device, bit=bit): self.assertRaisesRegex(error, text.format(bit), cross, make())
            if device == "cuda":
                with self.assertRaisesRegex(RuntimeError, "Can't get __cuda_array_interface__ on Tensor that has"): make().__cuda_array_interface__

    def test_addresses_are_those_of_the_base(self):
        base = torch.tensor(VALUES)
        self.assertEqual(base[1].conj().data_ptr(), base[1].data_ptr())
        self.assertEqual(base.conj().imag.data_ptr(), base.imag.data_ptr())

    @unittest.skipUnless(torch.cuda.device_count() > 1, "requires two devices")
    def test_values_move_between_devices(self):
        for like in (torch.tensor(VALUES), torch.tensor(VALUES).real):
            made = [comm.broadcast(view(like.cuda()), [0, 1])[1], comm.broadcast_coalesced([view(like.cuda())], [0, 1])[1][0],
                    torch.cat([part.cpu() for part in comm.scatter(view(like), [0, 1])]),
                    comm.gather([view(like[:1].cuda(0)), view(like[1:].cuda(1))], destination=0),
                    comm.reduce_add([view(like.cuda(0)), view(like.cuda(1) * 0)])]
            for t in made: self.assertEqual(t.tolist(), like.tolist())

    @unittest.skipUnless(torch.cuda.is_available(), "requires a device")
    def test_graphs_replay_writes_through_views(self):
        for like in (torch.tensor(VALUES), torch.tensor(VALUES).real):
            x = view(like.cuda())
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph): x.mul_(2)
            graph.replay()
            graph.replay()
            self.assertEqual(x.tolist(), (like * 4).tolist())


# {"conj": z.conj(), "H": z.H, "plain": z, "neg": z.clone().conj().imag, "both": torch._neg_view(z.clone().conj()),
#  "parameter": torch.nn.Parameter(z.conj())} with z = torch.tensor(VALUES), saved by PyTorch 2.15.
ZIP_FILE = zlib.decompress(base64.b85decode(
    'c-qC4NpI6Y6vrofVxSvKX@NG-0s-1Ii?g+*DFFo}A83t05tqnKOk!~2JZBOXDN-dwmoLGUkAOJQPk?|k7sQDZ962&$w~p;9Z7C9rVm-&6|Ns4F=FNDCbGZ@n`_Zm8'
    'fQFEuma0-)oGA-f2sfU{`CK1*Xlbj?4xmthc%YI}e+-TiR){EEY+*@mGDTHfX-RUqh{bwSQH$*u1I|#W;3NH;q^D33!KF)>n@X)Ai_h}1BH(-aI|keZ2k9CCPr*e~'
    'G+N;0+!%bz9O9gua}E3?IMyJrSt=>AES9jO)SJv*wJfS)`Ic0|3@}%CIMRWmUCLt{O$>cJ^lR>SV4zB%s;;WL>Zxk}gNFYQ=b+*EW|i8U=)lRY%_(X#%){w|hdgS?'
    'f>ehQyVa;+bw)=$t6QDJFvi2UHm<r@fuJtjo($_OoYy#`aDiC*F-$B|C~7&$xoNnlTVCqGWy3E-;mE_Q8t;mNt8i_HO|y%^lukHp5QcTa8Qm_@foRC^i*0lV9^YtT'
    'V0lOs0(9VlD%3<Qs*vol`bG~1Qug^t8`(2@_E|mqTnFa68L!jPEbx%s&|WUC!wnvCt?&}(^S^obfnRkZM6acu^*oH`jCu|~Qq-D&i)~SDl6uMKQns=_aEnraw?DqT'
    'q%%sd-T<R0)dkot{-PjDm3mFA<9sfD7=|QE0kTiwI~hE3?g=o6vIfA)b1W)!ljL)AhaEd@vV^fLQifO8zm0fF7Vn-6eQ3dQs?0?4x!Jz}Agi7wwu|IPuGRPCp8Q{3'
    'AaRStElT!v-Zc><4}$xUO<KvK`CJhF$NaH>o4+4T82OETF}@!_oS_*$y{_Efzy8Khth)iUAvQ%-B0J!PKu_(WRL<wZe^?8VG@D`5=`@?lBoh%for)(S5tdD+6KpD#'
    'PLlgfBA#JWlyYRf+zt_rkVfgCum-333>nx(ZvPJ2)#d|W*rNRCM7>TOyNP)dk6KKYU1*P!!|r3=h=UfN&n6$^0I<u=)zW8?KX4=4-aWYXr(GL8xVGW3X=8S+x&HdC'
    'c}?0L^KLGSF^ib@qJ0W>iSv4=cFNl|Z72h_c-yJRUtT>Doljfy?GE~v!{gO80j<B@_czZ8BgF'))
OLD_FILE = zlib.decompress(base64.b85decode(
    'c-pO!*>2N76o$Qpq=uHVQ`WM(EFn$eEG%uIr9!e;YHoakEY}&uu3S%!J+1)BQm#tMGw=Ys1$`YJ0f`IF#Hk}h=oOLUW6vD_|95^(U;3g3zrL>joZtHPcCOr)Uj2~q'
    'o`RrRvw|S>BFd;s1AB)=u}?z~vB8?goxo=-AT|j*z7v8puvA=RAA7`({ZAwYIR!<t3b+`1G-6ONBumCOKV)#kP%MRO(69?dLrIbYPrmBXa0^72(a816cEbE1R_%yv'
    'CVtSd83|(=**jGgBu%r5Tpv4~E&)0FL|vuZy?}gJ52(Z5WqT?p)(p0`>w2?UY1FFqcBRsS!jQ=AC7kFrgW`rE7?L6FLJ5nw3sZY84j&Mg;q0;cChCxgbk=;Ash}>H'
    'a5RNuW9I2W%wWcZ<Ccg^FJab0L{Ii6dY|wz&y%_5DMRGt^q$A1&!lj6EPakkpEqG{m}oC>{17f2CVz1xe<_#0oQ-rPlfTMf-h^wz07BA*>zUXn!auXSksCDH`eIYB'
    '*YqmfM1v9<+}hyS+~BsM@Ny?J&{9~))$elrdnVi;PP9px2M_+D=i)70Z#3#q9??I{=_?uiVkTZqp{C{P^}#qOeULC{n9#JQcu-E{Y!gNzX#L|n<sB-t56kn>i0E-n'
    '^duvCnh`Cfuso(%;qyK-;rU>=x%wH_OnAXh`FnoKC&VdEib0x0B9n4SIQaFK@wS2&{`=qY8Q=R$Sog8+EC0FgH~6Lx$p'))


class Files(unittest.TestCase):
    def test_views_of_pytorch_files_keep_their_bits(self):
        z = torch.tensor(VALUES)
        for data in (ZIP_FILE, OLD_FILE):
            for weights_only in (True, False):
                read = loaded(data, weights_only=weights_only)
                self.assertEqual({name: (t.is_conj(), t.is_neg()) for name, t in read.items()},
                                 {"conj": (True, False), "H": (True, False), "plain": (False, False), "neg": (False, True), "both": (True, True),
                                  "parameter": (True, False)})
                expected = {"conj": z.conj(), "H": z.H, "plain": z, "neg": -z.imag, "both": -z.conj(), "parameter": z.conj()}
                for name, t in expected.items(): self.assertEqual(read[name].tolist(), t.tolist(), name)
                self.assertEqual(read["conj"].data_ptr(), read["plain"].data_ptr())

    def test_files_mark_views_as_pytorch_does(self):
        x = conjugate(torch.tensor(VALUES))
        for t, marks in ((x, {"conj": True}), (x.imag, {"neg": True}), (x.real, {}), (x.clone(), {})):
            self.assertEqual(torch._utils.get_tensor_metadata(t), marks)
            self.assertEqual([made.is_conj() for made in loaded(saved([t, t[0]]))], [t.is_conj()] * 2)

    def test_copies_of_a_base_and_its_view_have_their_values(self):
        z = torch.tensor(VALUES)
        for pair in ([z, z.conj()], [z.conj(), z]):
            self.assertEqual([t.tolist() for t in copy.deepcopy(pair)], [t.tolist() for t in pair])

    def test_marks_require_a_dtype_with_such_views(self):
        for dtype, marks in ((torch.float32, {"conj": True}), (torch.bool, {"neg": True})):
            with self.assertRaisesRegex(RuntimeError, "cannot have the bit"): torch._utils.set_tensor_metadata(torch.ones(2, dtype=dtype), marks)
        for marks in (3, [], "conj"):
            with self.assertRaises(TypeError): torch._utils.set_tensor_metadata(torch.ones(2), marks)

    def test_files_with_other_marks_are_refused(self):
        marks_of = torch._utils.get_tensor_metadata
        for marks, error in (({"conj": True}, RuntimeError), (5, pickle.UnpicklingError), ("conj", pickle.UnpicklingError)):
            torch._utils.get_tensor_metadata = lambda t: marks
            try: data = saved(torch.ones(3))
            finally: torch._utils.get_tensor_metadata = marks_of
            with self.assertRaises(error): loaded(data)

    def test_private_names_of_views(self):
        z = torch.tensor(VALUES)
        self.assertEqual((torch._neg_view(z).is_neg(), z._neg_view().tolist()), (True, (-z).tolist()))
        self.assertEqual((torch._conj(z).is_conj(), torch._conj_physical(z).is_conj()), (True, False))
        self.assertFalse(torch._neg_view(torch._neg_view(z)).is_neg())
