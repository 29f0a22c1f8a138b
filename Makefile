# Phlox: the only build file. `make` builds the library, the simulated backend, and the Python module where Python is found.
# O=dir builds elsewhere; SAN=address|undefined|thread|address,undefined builds with sanitizers (into O=build-SAN by default).
# V=1 shows the commands. CFLAGS and LDFLAGS are the user's: what the library needs is added to them. WERROR=1 ends at a warning.
# TARGET=aarch64-linux-gnu builds for another machine, by the compiler and the object tools of that prefix (into O=build-TARGET by default): the library,
# the simulated backend, the C tests, and the Python module if PYINC names the folder of that machine's Python.h.
SAN      ?=
TARGET   ?=
O        ?= build$(SAN:%=-%)$(TARGET:%=-%)
PYTHON   ?= python3
PREFIX   ?= /usr/local
LIBDIR   ?= $(PREFIX)/lib
VERSION  := 0.10.0

# Programs that run while Phlox is built are made by the host's compiler.
HOSTCC   ?= $(if $(TARGET),cc,$(CC))
CC       := $(if $(filter default,$(origin CC)),$(TARGET:%=%-)$(if $(TARGET),gcc,$(CC)),$(CC))
OBJCOPY  ?= $(TARGET:%=%-)objcopy
STRIP    ?= $(TARGET:%=%-)strip
MACHINE  := $(firstword $(subst -, ,$(or $(TARGET),$(shell $(CC) -dumpmachine))))

# A recipe that begins with $(call say,CC) shows `CC  its target`, or, with V=1, the command itself.
V        ?= 0
say       = $(if $(filter 1,$(V))$(findstring s,$(firstword -$(MAKEFLAGS))),$(if $(filter 1,$(V)),,@),@printf '  %-8s %s\n' '$(1)' '$(patsubst $(O)/%,%,$@)';)

WARN     := -Wall -Wextra -Wshadow -Wmissing-prototypes -Wstrict-prototypes -Wundef -Wvla -Wno-unused-parameter
# What clang says beside: a loop that can be made vectors need not be, members that are not named are 0, and of attributes it takes those that it knows.
WARN     += $(if $(findstring clang,$(shell $(CC) --version)),-Wno-pass-failed -Wno-missing-field-initializers -Wno-ignored-attributes)
# Reports of sanitizers want lines, not what else debuggers know: it is a sixth of the time of compiling.
OPT      ?= $(if $(SAN),-O1 -g1,-O2 -g)
SANFLAGS := $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer -Wno-maybe-uninitialized $(if $(findstring undefined,$(SAN)),-fno-sanitize-recover=all))
# A library that Python loads has no room in the static block of thread-local storage; descriptors are fast without it.
TLSFLAG  := $(shell $(CC) -mtls-dialect=gnu2 -E -x c /dev/null >/dev/null 2>&1 && echo -mtls-dialect=gnu2)
# gcc copies and clears what is small, or of unknown size, by `rep`, which costs more to start than libc's functions take. This option alone holds where
# room counts (-Os), too.
NOREP    := $(shell $(CC) -Werror -mstringop-strategy=libcall -E -x c /dev/null >/dev/null 2>&1 && echo -mstringop-strategy=libcall)
# Functions of other libraries are called through the table of addresses, without a stub before it, and begin at half a line of the instruction cache: a
# call from Python runs through three libraries, and a small op is 3 to 7 % of its time faster.
CALLS    := $(shell $(CC) -Werror -fno-plt -falign-functions=32 -E -x c /dev/null >/dev/null 2>&1 && echo -fno-plt -falign-functions=32)
# Tables that say how to unwind the stack in the middle of a function are for exceptions, which C has not: debuggers have their own.
UNWIND   := -fno-asynchronous-unwind-tables
# A product and a sum are rounded each, so that results do not follow from the compiler: for gcc -std=c11 says so.
ROUNDED  := $(if $(findstring clang,$(shell $(CC) --version)),-ffp-contract=off)
CFLAGS   ?= $(OPT)
COMPILE   = $(CC) $(TLSFLAG) $(NOREP) $(ROUNDED) $(if $(SAN),,$(CALLS) $(UNWIND)) -std=c11 -D_GNU_SOURCE $(CFLAGS) $(WARN) $(if $(WERROR),-Werror) -fPIC -fvisibility=hidden -pthread $(SANFLAGS)
INCLUDES := -Iinclude -Isrc -Ibackends -I$(O)/gen
# Relative relocations in a form that is a fiftieth as large, of which each process would have the pages. A C library before glibc 2.36 does not load it:
# RELR= builds for those too.
RELR     := $(shell t=$$(mktemp); echo 'int puts(const char *); char *s = ""; int f(void) { return puts(s); }' | $(CC) -x c - -shared -fPIC -Wl,-z,pack-relative-relocs -o $$t 2>/dev/null && grep -q GLIBC_ABI_DT_RELR $$t && echo -Wl,-z,pack-relative-relocs; rm -f $$t)
LINK      = $(CC) $(LDFLAGS) $(RELR) -pthread $(SANFLAGS)
TOOL      = $(HOSTCC) -std=c11 -D_GNU_SOURCE -O1 -g -Wall -Wextra
# Kernels: errno and traps of math functions are not looked at; NaN and infinity are.
# Where a short loop lies among lines of the instruction cache moved a product of small matrices by a fifth.
KALIGN   := $(shell $(CC) -Werror -falign-functions=64 -falign-loops=32 -E -x c /dev/null >/dev/null 2>&1 && echo -falign-functions=64 -falign-loops=32)
# Products of complex numbers keep C's rules: by Fortran's (-fcx-fortran-rules) GCC 12 fuses multiplications with additions in vectors of float, though
# contraction is off, and not in what is left of a row: a number would follow from its place.
KFLAGS   := -fno-math-errno -fno-trapping-math -fwrapv
V3FLAGS  := -march=x86-64-v3
# Loops for strides of one beside those for any took a fifth of the room of products of matrices.
KSTRIDE  := $(shell $(CC) -Werror -fno-version-loops-for-strides -E -x c /dev/null >/dev/null 2>&1 && echo -fno-version-loops-for-strides)
KFAST    := -O3 $(KALIGN) $(KSTRIDE)
# Most kernels want vectors and what they are made of in one piece, and nothing else of what -O3 has: what is left of a row, unrolled, took a quarter of
# their room.
KVECTOR  := -ftree-vectorize -fvect-cost-model=dynamic -finline-functions --param=max-inline-insns-single=200 --param=max-inline-insns-auto=30 \
  --param=inline-min-speedup=15 --param=early-inlining-insns=14
KVECTOR  := -O2 $(shell $(CC) -Werror $(KVECTOR) -E -x c /dev/null >/dev/null 2>&1 && echo $(KVECTOR))
# Of most kernels one loop is enough. Those for each value of a condition, for strides of one and for what is left of a row take as much room again,
# and more time of the compiler, and made rows of no dtype faster but of bytes.
KONCE    := -fno-unswitch-loops -fno-version-loops-for-strides --param=vect-epilogues-nomask=0
KONCE    := $(shell $(CC) -Werror $(KONCE) -E -x c /dev/null >/dev/null 2>&1 && echo $(KONCE))

OPS      := $(wildcard ops/*.op layers/*.layer optim/*.optim)
GEN      := $(O)/gen/stamp
CORE     := $(wildcard src/*/*.c src/*/*/*.c)
# An op's code and its kernels are in one of many small files: a new op changes one of each.
OPSGEN   := $(patsubst %,ops_%.c,$(shell seq 0 31))
GENSRC   := $(addprefix $(O)/gen/,ops_table.c $(OPSGEN) layers.c optim_kinds.c schedule_kinds.c)
CPU      := $(wildcard backends/cpu/*.c)
SIM      := $(wildcard backends/sim/*.c)
EXT      := $(wildcard python/ext/*.c)
COREOBJ  := $(CORE:%.c=$(O)/%.o) $(GENSRC:%.c=%.o)
# Variants of the CPU kernels: base is for any processor of the machine's kind, and v3 for an x86 with AVX2.
VARIANTS := base $(if $(SAN),,$(if $(filter x86_64,$(MACHINE)),v3))
# What calls LAPACK, or waits, gains nothing from AVX2.
ONCE     := factor matrices solve threads worth
TWICE    := $(filter-out $(ONCE:%=backends/cpu/%.c),$(CPU))
CPUOBJ   := $(VARIANTS:%=$(O)/cpu_%.o) $(ONCE:%=$(O)/once/%.o)
ARCHIVES := -l:libjson-c.a

# The cuda backend is built where nvcc is found; CUDA=0 leaves it out, and so do sanitizer builds.
CUDA     ?= 1
NVCC     := $(if $(SAN)$(TARGET),,$(if $(filter 0,$(CUDA)),,$(firstword $(shell command -v nvcc) $(wildcard /usr/local/cuda/bin/nvcc))))
CUDALIB  := $(if $(NVCC),$(O)/libphlox_cuda.so)

# The engine over Gloo is built where libgloo-dev and a C++ compiler are found; GLOO=0 leaves it out.
GLOO     ?= $(if $(TARGET),,$(if $(wildcard /usr/include/gloo/context.h),$(shell command -v $(CXX))))
GLOOLIB  := $(if $(filter-out 0,$(GLOO)),$(O)/libphlox_gloo.so)
# That over NCCL needs nothing to be built: it finds the library at run time.
NCCLLIB  := $(O)/libphlox_nccl.so
# That over MPI is built where mpicc is; MPI=0 leaves it out.
MPI      ?= $(if $(SAN)$(TARGET),,$(shell command -v mpicc))
MPILIB   := $(if $(filter-out 0,$(MPI)),$(O)/libphlox_mpi.so)

all: $(O)/libphlox.so $(O)/libphlox_sim.so $(NCCLLIB) cuda gloo mpi python

# ---- the generator and what it writes
$(O)/opgen: $(wildcard tools/opgen*.c tools/opgen*.h) include/phlox/dtype.h include/phlox/dtypes.h
	@mkdir -p $(O)
	$(call say,HOSTCC)$(TOOL) -Iinclude -o $@ $(filter %.c,$^)
$(GEN): $(O)/opgen $(OPS)
	@mkdir -p $(O)/gen/phlox/ops $(addprefix $(O)/gen/,hidden run_functions kernel_args batch_functions)
	$(call say,OPGEN)$(O)/opgen $(O)/gen $(OPS)
	@touch $@
# What opgen writes changes only where its text does: a new op rebuilds what it touches.
# Of tables with an op that programs may call.
OPHEAD   := $(patsubst ops/%.op,$(O)/gen/phlox/ops/%.h,$(sort $(shell awk '/^  kind / && !/ hidden/ {print FILENAME}' ops/*.op)))
GENHEAD  := $(OPHEAD) $(addprefix $(O)/gen/,phlox/ops.h conditions.h phlox/layers.h phlox/optimizers.h layer_functions.h layer_samples.inc grad_functions.h \
  cpu_kernels.h cuda_args.h convert_pairs.inc samples.inc)
CPUGEN   := kernels_cpu_table kernels_cpu_optim $(addprefix kernels_cpu_,$(shell seq 0 63))
$(GENSRC) $(GENHEAD) $(CPUGEN:%=$(O)/gen/%.c): $(GEN) ;
$(O)/gen/hidden/%.h: $(GEN) ;
$(O)/gen/run_functions/%.h: $(GEN) ;
$(O)/gen/batch_functions/%.h: $(GEN) ;
$(O)/gen/kernel_args/%.h: $(GEN) ;

# ---- the library
$(O)/%.o: %.c | $(GENHEAD)
	@mkdir -p $(@D)
	$(call say,CC)$(COMPILE) $(INCLUDES) $(CPPFLAGS) -MMD -MP -c -o $@ $<
# The loader's static block is full once the library is loaded: the first access of a thread by a descriptor then loses the vector registers of its caller,
# before glibc 2.40 (BZ 31372).
$(O)/backends/cuda/%.o: TLSFLAG :=
$(O)/src/base/memory.o: CPPFLAGS += -DPX__VERSION='"$(VERSION)"'
$(O)/src/base/memory.o: Makefile
# What waits for others, or for LAPACK, or runs once for a layer or a batch, takes no time of its own: room counts. Files have tensors by ten thousands.
COLD     := $(wildcard src/comm/*.c src/data/*.c src/io/checkpoint*.c src/parallel/*.c) $(addprefix src/optim/,clip.c lbfgs.c scheduler.c schedules.c) \
  $(addprefix src/nn/,adaptive.c containers.c flops.c fuse.c init.c init_matrix.c layer_code.c layer_norm.c layer_sized.c lazy.c prune.c state.c \
  sync_norm.c text.c visit.c) \
  $(addprefix src/ops/,factor.c fft.c fractional.c grid.c histogram.c integers.c jit.c jit_words.c linalg.c linalg_sums.c loss_ctc.c masked.c patches.c \
  quantile.c recurrent_pack.c solve.c statistics.c stft.c volume.c volume_pool.c windows.c \
  arrange.c attention.c batch.c batch_index.c batch_layer.c complex.c differences.c index_reduce.c loss_labels.c noise.c powers.c recurrent.c recurrent_net.c \
  recurrent_whole.c resize.c sort.c unique.c) \
  $(addprefix src/autograd/,engine/flops.c engine/gradcheck.c rules/grad_factor.c rules/grad_fft.c rules/grad_norm.c rules/grad_recurrent.c rules/grad_solve.c) \
  $(addprefix src/,call/batch.c call/schema.c device/configure.c nn/attention.c nn/recurrent.c nn/transformer.c)
# Of the extension all but what calls of ops, tensors and modules go through.
WARM     := args attributes bind construct convert device dtype foreach function handle index methods module nn_call nn_class nn_functions nn_hooks nn_invoke nn_method nn_methods nn_module nn_values nn_views \
  number ops optim override pickle several signature size storage stream subclass tensor tree unpickle unpickle_globals
COLDEXT  := $(filter-out $(WARM:%=python/ext/%.c),$(EXT))
# An op's formulas, checks and C functions hand on to the driver: a sixth of their room, and a call from C took as long.
$(O)/gen/layers.o $(OPSGEN:%.c=$(O)/gen/%.o) $(COLD:%.c=$(O)/%.o) $(COLDEXT:python/%.c=$(O)/%.o): CFLAGS := $(subst -O2,-Os,$(CFLAGS))
$(O)/gen/%.o: $(O)/gen/%.c
	$(call say,CC)$(COMPILE) $(INCLUDES) $(CPPFLAGS) -MMD -MP -c -o $@ $<
# The CPU kernels are compiled once for each variant; all their names but the table's are made local.
# Whole numbers of tensors wrap around, as on GPUs: -fwrapv says so to the compiler, and to the sanitizer.
# $(1) the variant, $(2) what it is compiled for, $(3) what it is to be: fast or small
define variant
$(O)/$(1)/%.o: backends/cpu/%.c | $$(GENHEAD)
	@mkdir -p $$(@D)
	$$(call say,CC)$$(COMPILE) $$(INCLUDES) $$(CPPFLAGS) $$(KFLAGS) $(2) $(if $(SAN),,$(3)) -DPX_CPU_TABLE=px__cpu_table_$(1) -MMD -MP -c -o $$@ $$<
$(O)/$(1)/kernels_cpu_%.o: $(O)/gen/kernels_cpu_%.c
	@mkdir -p $$(@D)
	$$(call say,CC)$$(COMPILE) $$(INCLUDES) $$(CPPFLAGS) $$(KFLAGS) $(2) $(if $(SAN),,$(3)) -DPX_CPU_TABLE=px__cpu_table_$(1) -MMD -MP -c -o $$@ $$<
$(O)/cpu_$(1).o: $(TWICE:backends/cpu/%.c=$(O)/$(1)/%.o) $(CPUGEN:%=$(O)/$(1)/%.o)
	$$(call say,LD)$$(CC) -r -nostdlib -o $$@ $$^ && $(OBJCOPY) --keep-global-symbol=px__cpu_table_$(1) $$@
endef
# An x86 without AVX2 has fast products and convolutions; all else takes the least room. Other machines have no variant but this.
KBASE     = $(if $(filter v3,$(VARIANTS)),-Os,$(KFAST))
$(eval $(call variant,base,,$$(KBASE)))
$(addprefix $(O)/base/,conv.o conv_few.o conv_planes.o conv_small.o conv_tiles.o conv_winograd.o gemm.o gemm_bf16.o gemm_tiles.o): KBASE := $(KFAST)
$(eval $(call variant,v3,$(V3FLAGS),$$(KFAST)))
$(foreach v,$(VARIANTS),$(patsubst %,$(O)/$(v)/%.o,group pairs random recurrent stored)): KFAST := $(KVECTOR) $(KALIGN) $(KONCE)
# A row of numbers is long: where its loop lies makes no difference.
$(foreach v,$(VARIANTS),$(patsubst %,$(O)/$(v)/%.o,$(filter-out %_table %_optim,$(CPUGEN)))): KFAST := $(KVECTOR) $(KONCE)
# So it is of these, whose loops of few steps are to be unrolled (clang does so unasked).
KPEEL    := $(shell $(CC) -Werror -fpeel-loops -E -x c /dev/null >/dev/null 2>&1 && echo -fpeel-loops)
PEELED   := arange conv conv_depth conv_few conv_planes conv_small conv_tiles conv_winograd fft gemm_bf16
$(foreach v,$(VARIANTS),$(PEELED:%=$(O)/$(v)/%.o)): KFAST := $(KVECTOR) $(KALIGN) $(KONCE) $(KPEEL)
$(O)/once/%.o: backends/cpu/%.c | $(GENHEAD)
	@mkdir -p $(@D)
	$(call say,CC)$(COMPILE) $(INCLUDES) $(CPPFLAGS) $(KFLAGS) -MMD -MP -c -o $@ $<

$(O)/libphlox.so: $(COREOBJ) $(CPUOBJ)
	$(call say,LD)$(LINK) -shared -Wl,-soname,libphlox.so.0 -Wl,--no-undefined -Wl,--exclude-libs,ALL -Wl,-Bsymbolic-functions -o $@ $^ $(ARCHIVES) -lm -ldl
	@ln -sf libphlox.so $(O)/libphlox.so.0
$(O)/libphlox_sim.so: $(SIM:%.c=$(O)/%.o)
	$(call say,LD)$(LINK) -shared -o $@ $^

# ---- the engine of collectives over Gloo: the one file in C++
$(O)/libphlox_gloo.so: backends/gloo/gloo.cc include/phlox/engine.h
	@mkdir -p $(@D)
	$(call say,CXX)$(CXX) -std=c++17 $(OPT) -Wall -Wextra -Wshadow -Wno-unused-parameter $(if $(WERROR),-Werror) -fPIC -fvisibility=hidden -pthread $(SANFLAGS) -Iinclude $(CPPFLAGS) -shared -o $@ $< $(LDFLAGS) -lgloo
gloo: $(GLOOLIB)
	$(if $(GLOOLIB),,@echo 'libgloo-dev or a C++ compiler is not here (or GLOO=0): the gloo engine is not built')
$(O)/libphlox_mpi.so: backends/mpi/mpi.c include/phlox/engine.h
	@mkdir -p $(@D)
	$(call say,MPICC)OMPI_CC='$(CC)' MPICH_CC='$(CC)' $(MPI) -std=gnu11 $(OPT) -Wall -Wextra -Wshadow $(if $(WERROR),-Werror) -fPIC -fvisibility=hidden -pthread -Iinclude $(CPPFLAGS) -shared -o $@ $< $(LDFLAGS)
mpi: $(MPILIB)
	$(if $(MPILIB),,@echo 'mpicc is not here (or MPI=0): the mpi engine is not built')

$(O)/backends/nccl/%.o: TLSFLAG :=
$(NCCLLIB): $(O)/backends/nccl/nccl.o
	$(call say,LD)$(LINK) -shared -Wl,--no-undefined -o $@ $^ -ldl

# ---- the cuda backend: host code, and one fatbin for each .cu file, which the library holds
# One expression of the tables serves all dtypes: that an unsigned number is compared with 0 says nothing.
NVFLAGS  ?= --compress-mode=size -O3 -diag-suppress 186,514
CUDAARCH ?= -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 -gencode arch=compute_90,code=compute_90
# The toolkit's headers: those of nvcc, or, where the backend is only looked at (lint), those in the usual place.
TOOLKIT  := $(patsubst %/cuda.h,%,$(firstword $(wildcard $(if $(NVCC),$(dir $(NVCC))../include/cuda.h) /usr/local/cuda/include/cuda.h)))
# The opgen of this tree may not write them.
CUDAGEN  := $(if $(wildcard tools/opgen_cuda.c),$(addprefix kernels_cuda_,0 1 2 3 4 5 6 7 complex fold optim))
CUDAROWS := $(if $(CUDAGEN),$(addprefix $(O)/gen/,kernels_cuda_rows.o kernels_cuda_optim_rows.o))
CUDAHOST := $(patsubst %.c,$(O)/%.o,$(wildcard backends/cuda/host/*.c)) $(CUDAROWS)
FATBINS  := $(patsubst backends/cuda/kernels/%.cu,$(O)/cuda/%.fatbin,$(wildcard backends/cuda/kernels/*.cu)) $(CUDAGEN:%=$(O)/cuda/%.fatbin)
CUDAINC   = $(addprefix -isystem ,$(TOOLKIT))
$(CUDAGEN:%=$(O)/gen/%.cu) $(CUDAROWS:.o=.c): $(GEN) ;
$(O)/backends/cuda/%.o $(CUDAROWS) $(O)/cuda/modules.o: INCLUDES += $(CUDAINC)
$(O)/cuda/%.fatbin: backends/cuda/kernels/%.cu | $(GENHEAD)
	@mkdir -p $(@D)
	$(call say,NVCC)$(NVCC) -std=c++17 $(NVFLAGS) $(CUDAARCH) -Iinclude -Ibackends -I$(O)/gen -MMD -MP -MF $@.d --fatbin -o $@ $<
$(O)/cuda/%.fatbin: $(O)/gen/%.cu
	@mkdir -p $(@D)
	$(call say,NVCC)$(NVCC) -std=c++17 $(NVFLAGS) $(CUDAARCH) -Iinclude -Ibackends -I$(O)/gen -MMD -MP -MF $@.d --fatbin -o $@ $<
$(O)/bin2c: tools/bin2c.c
	@mkdir -p $(@D)
	$(call say,HOSTCC)$(TOOL) -o $@ $<
$(O)/cuda/modules.c: $(O)/bin2c $(FATBINS)
	$(call say,BIN2C)$(O)/bin2c $@ $(FATBINS)
$(O)/cuda/modules.o: $(O)/cuda/modules.c
	$(call say,CC)$(COMPILE) $(INCLUDES) $(CPPFLAGS) -MMD -MP -c -o $@ $<
$(O)/libphlox_cuda.so: $(CUDAHOST) $(O)/cuda/modules.o backends/cuda/exports.map
	$(call say,LD)$(LINK) -shared -Wl,--no-undefined -Wl,--version-script=backends/cuda/exports.map -o $@ $(filter %.o,$^) -lm -ldl
cuda: $(CUDALIB)
	$(if $(CUDALIB)$(SAN),,@echo 'nvcc is not here (or CUDA=0): the cuda backend is not built')

# ---- Python
PYABI := $(if $(TARGET),$(PYINC),$(shell $(PYTHON) -c 'import sysconfig; print(sysconfig.get_paths()["include"], sysconfig.get_config_var("SOABI"))' 2>/dev/null))
PYINC := $(firstword $(PYABI))
# Another Python needs another extension: the file changes when the interpreter does.
$(if $(PYABI),$(shell mkdir -p $(O)/ext && { echo '$(PYABI)' | cmp -s - $(O)/ext/abi || echo '$(PYABI)' >$(O)/ext/abi; }))
PYHAS := $(wildcard $(PYINC)/Python.h)
python: $(if $(PYHAS),$(if $(SAN)$(TARGET),$(O)/_C.so,$(O)/python))
# CPython's headers check what they are given in each call, unless NDEBUG says that this is no build for that, as for CPython's own modules.
$(O)/ext/%.o: python/ext/%.c $(O)/ext/abi | $(GENHEAD)
	@mkdir -p $(@D)
	$(call say,CC)$(COMPILE) $(if $(SAN),,-DNDEBUG) -Iinclude -Ipython/ext -I$(O)/gen -I$(PYINC) $(CPPFLAGS) -Wno-cast-function-type -MMD -MP -c -o $@ $<
$(O)/_C.so: $(EXT:python/ext/%.c=$(O)/ext/%.o) $(O)/libphlox.so
	$(call say,LD)$(LINK) -shared -o $@ $(filter %.o,$^) -L$(O) -lphlox -Wl,-rpath,'$$ORIGIN'
# The module finds its libraries beside itself: in the tree that is python/phlox.
$(O)/python: $(GEN) $(O)/_C.so $(O)/libphlox.so $(O)/libphlox_sim.so $(CUDALIB) $(GLOOLIB) $(NCCLLIB) $(MPILIB) tools/stubs.py tools/members.pyi $(wildcard python/phlox/_*.py)
	$(call say,COPY)cp $(O)/_C.so $(O)/libphlox_sim.so $(CUDALIB) $(GLOOLIB) $(NCCLLIB) $(MPILIB) python/phlox/
	@cp $(O)/libphlox.so python/phlox/libphlox.so.0
	@cp $(addprefix $(O)/gen/,_kinds.py _formulas.py _schedules.py) python/phlox/optim/
	$(call say,STUBS)PYTHONPATH=python $(PYTHON) tools/stubs.py $(O)/gen/_layers.pyi
	@touch $@

# The module's libraries without what debuggers read, as a wheel has them, and what an installation takes, by part.
stripped: all
	@rm -rf $(O)/stripped && mkdir -p $(O)/stripped
	@for library in python/phlox/*.so python/phlox/*.so.0; do $(STRIP) -o $(O)/stripped/$${library##*/} $$library || exit 1; done
size: stripped
	@tools/size.sh $(O)

# ---- tests: every tests/{unit,cts,ops,fault,race,fuzz}/*.c is a program
TESTS    := $(wildcard tests/unit/*.c tests/cts/*.c tests/ops/*.c tests/fault/*.c tests/race/*.c tests/fuzz/*.c)
TESTHEAD := $(wildcard tests/*.h tests/*/*.h tests/fuzz/corpus/*.inc)
TESTBIN  := $(TESTS:tests/%.c=$(O)/tests/%)
# A stand-in for NCCL.
$(O)/tests/nccl/libnccl.so.2: tests/nccl/stub.c tests/nccl/stub.h
	@mkdir -p $(@D)
	$(call say,CC)$(COMPILE) -Itests $(CPPFLAGS) -shared -o $@ $< $(LDFLAGS)
$(O)/tests/ops/nccl_test: $(O)/tests/nccl/libnccl.so.2
# What programs look for when they run, so that one made alone finds it.
OPENED   := $(O)/libphlox_sim.so $(GLOOLIB) $(NCCLLIB) $(MPILIB)
# Unit tests may look inside the library: they link its objects. The others see the public headers alone.
$(O)/tests/unit/%: tests/unit/%.c $(TESTHEAD) $(GENHEAD) $(COREOBJ) $(CPUOBJ) | $(OPENED)
	@mkdir -p $(@D)
	$(call say,CC)$(COMPILE) $(INCLUDES) $(CPPFLAGS) -Itests -o $@ $< $(COREOBJ) $(CPUOBJ) $(LDFLAGS) $(ARCHIVES) -lm -ldl -rdynamic
$(O)/tests/%: tests/%.c $(TESTHEAD) $(GENHEAD) $(O)/libphlox.so | $(OPENED)
	@mkdir -p $(@D)
	$(call say,CC)$(COMPILE) -Iinclude -I$(O)/gen -Itests $(CPPFLAGS) -o $@ $< -L$(O) -lphlox $(LDFLAGS) -lm -Wl,-rpath,'$$ORIGIN/../..'
tests: all examples $(TESTBIN)
test: tests
	script/test --built

# Random cases, for FUZZ_SECONDS (180) each, from FUZZ_SEED (1) on.
fuzz: all $(filter $(O)/tests/fuzz/%,$(TESTBIN))
	tools/fuzz.sh $(O) $(PYTHON) $(if $(SAN),$(SANLIB))

# What the library is put through, as one line of figures; LONG=1: a night of it.
reliability: all $(filter $(O)/tests/fault/% $(O)/tests/fuzz/% $(O)/tests/race/host_threads,$(TESTBIN))
	script/reliability $(O)

# What editors and analysers read: the command of each object file.
compile_commands.json: Makefile
	@$(MAKE) --no-print-directory -Bn V=1 CUDA=0 all | tools/commands.sh "$(CURDIR)" >$@.new && mv $@.new $@

# Programs that live beside the library.
$(O)/examples/%: examples/%.c $(O)/libphlox.so
	@mkdir -p $(@D)
	$(call say,CC)$(COMPILE) -Iinclude -I$(O)/gen $(CPPFLAGS) -o $@ $< -L$(O) -lphlox $(LDFLAGS) -lm -lz -Wl,-rpath,'$$ORIGIN/..'
$(O)/bench/%: bench/%.c $(O)/libphlox.so
	@mkdir -p $(@D)
	$(call say,CC)$(COMPILE) -Iinclude -I$(O)/gen -Ibench $(CPPFLAGS) -o $@ $< -L$(O) -lphlox $(LDFLAGS) -lm -Wl,-rpath,'$$ORIGIN/..'
# Shared objects that programs load: a backend, ops from outside, and the latter's kernels where nvcc is.
$(O)/examples/libphlox_%.so: examples/backend/%.c $(wildcard include/phlox/*.h)
	@mkdir -p $(@D)
	$(call say,CC)$(COMPILE) -Iinclude $(CPPFLAGS) -shared -o $@ $< $(LDFLAGS)
$(O)/examples/lib%_cuda.so: examples/own_op/%.cu
	@mkdir -p $(@D)
	$(call say,NVCC)$(NVCC) -std=c++17 $(CUDAARCH) -Iinclude -shared -Xcompiler -fPIC -o $@ $<
$(O)/examples/lib%.so: examples/own_op/%.c $(O)/libphlox.so
	@mkdir -p $(@D)
	$(call say,CC)$(COMPILE) -Iinclude -I$(O)/gen $(CPPFLAGS) -shared -o $@ $< -L$(O) -lphlox $(LDFLAGS) -lm -Wl,-rpath,'$$ORIGIN/..'
OWNOPS   := $(wildcard examples/own_op/*.c) $(if $(NVCC),$(patsubst %.cu,%_cuda.c,$(wildcard examples/own_op/*.cu)))
examples: $(patsubst examples/%.c,$(O)/examples/%,$(wildcard examples/*.c)) \
  $(patsubst examples/backend/%.c,$(O)/examples/libphlox_%.so,$(wildcard examples/backend/*.c)) \
  $(patsubst examples/own_op/%.c,$(O)/examples/lib%.so,$(OWNOPS))
bench: all $(patsubst bench/%.c,$(O)/bench/%,$(wildcard bench/*.c))
	$(PYTHON) $(if $(AGAINST),bench/turns.py $(AGAINST),bench/run.py $(O)/bench.json)
bench-cuda: all $(patsubst bench/%.c,$(O)/bench/%,$(wildcard bench/*.c))
	$(PYTHON) bench/vs_torch.py --out $(O)/vs_torch.json
bench-ops: all
	PYTHONPATH=python $(PYTHON) bench/ops.py
demo:
	script/demo
# The pages that follow from the sources: docs/ops.md, docs/layers.md and docs/optim.md from the tables, HACKING's table of environment variables.
# What Phlox makes of PyTorch's own samples. TORCH is a Python that has PyTorch, BESIDE one whose
# PyTorch has the GPU of DEVICES=cuda; JOBS says how many processes replay on each device.
DEVICES ?= cpu sim
BESIDE  ?=
JOBS    ?= 2
MOST    ?= 12
parity: python
	@test -n "$(TORCH)" || { echo "make parity TORCH=PYTHON [DEVICES='cpu sim'] [BESIDE=PYTHON] [MOST=samples of an op]: PYTHON has PyTorch" >&2; exit 2; }
	$(TORCH) tests/parity/sample.py $(O)/parity.gz --most $(MOST)
	PYTHONPATH=python $(PYTHON) tests/parity/replay.py $(O)/parity.gz --device $(DEVICES) --jobs $(JOBS) \
	  $(if $(BESIDE),--beside $(BESIDE)) --page docs/parity$(if $(filter cuda,$(DEVICES)),-cuda).md

docs: $(GEN)
	@mkdir -p docs
	cp $(O)/gen/ops.md $(O)/gen/layers.md $(O)/gen/optim.md docs/
	tools/docs.sh

# ---- checks: of the sources, and of what was built (the cuda backend takes minutes to build: looked at where it is there)
check: $(O)/libphlox.so $(O)/libphlox_sim.so
	@tools/layers.sh
	@tools/numbers.sh
	@tools/kernels.sh
	@tools/budget.sh
	@tools/abi.sh
	@tools/env.sh
	@tools/unused.sh
	@tools/circles.sh --check $(O)
	@tools/docs.sh --check
	@for page in ops.md layers.md optim.md; do cmp $(O)/gen/$$page docs/$$page || { echo "docs/$$page is not what the tables give: make docs"; exit 1; }; done
	@tools/binary.sh $(O)/libphlox.so
	@$(if $(wildcard $(O)/libphlox_cuda.so),tools/binary.sh $(O)/libphlox_cuda.so)
	@if command -v clang-format >/dev/null; then clang-format --dry-run -Werror $$(git ls-files '*.c' '*.h'); else echo 'clang-format is not here: format not checked'; fi
asan ubsan tsan:
	$(MAKE) SAN=$(patsubst asan,address,$(patsubst ubsan,undefined,$(patsubst tsan,thread,$@))) all tests

# ---- static analysis. A file is looked at again when its object is newer: when it, or a header of it, has changed.
TIDIED   := $(CORE) $(CPU) $(SIM) backends/nccl/nccl.c $(if $(PYHAS),$(EXT)) $(if $(TOOLKIT),$(wildcard backends/cuda/host/*.c))
LINTINC   = $(INCLUDES) -Ipython/ext $(addprefix -isystem ,$(PYINC) $(TOOLKIT))
define tidied
$(O)/lint/$(1)/%.ok: $(1)/%.c $(O)/$(2)/%.o .clang-tidy
	@mkdir -p $$(@D)
	@clang-tidy --quiet $$< -- $$(LINTINC) -std=c11 -D_GNU_SOURCE >$$@.log 2>&1 || { cat $$@.log; exit 1; }
	@mv $$@.log $$@
endef
$(foreach folder,$(sort $(patsubst %/,%,$(dir $(CORE) $(SIM) backends/nccl/nccl.c $(wildcard backends/cuda/host/*.c)))),$(eval $(call tidied,$(folder),$(folder))))
$(eval $(call tidied,backends/cpu,base))
$(eval $(call tidied,python/ext,ext))
lint-files: $(TIDIED:%.c=$(O)/lint/%.ok)
# cppcheck does not know __builtin_expect and __typeof__, nor that gcc and clang define the shift of a negative number. Kernels read bytes as a dtype.
CPPCHECK  = cppcheck -j$$(nproc) --quiet --error-exitcode=1 --enable=warning,portability,performance --inline-suppr \
  --library=posix --library=gnu --library=python '-D__builtin_expect(x,y)=(x)' '-D__typeof__(x)=x' --suppress=shiftTooManyBitsSigned --suppress=invalidPointerCast \
  --cppcheck-build-dir=$(O)/lint/cppcheck $(filter -I%,$(LINTINC))
lint: $(GENHEAD)
	@mkdir -p $(O)/lint/cppcheck
	@if command -v clang-tidy >/dev/null; then $(MAKE) --no-print-directory -k -j$$(nproc) lint-files; else echo 'clang-tidy is not here: not run'; fi
	@if command -v cppcheck >/dev/null; then $(CPPCHECK) src backends python/ext; else echo 'cppcheck is not here: not run'; fi

# The Python module of a sanitizer build, run by a Python that has the sanitizer's runtime loaded first.
SANLIB = $(shell $(CC) -print-file-name=lib$(if $(findstring address,$(SAN)),a,$(if $(findstring thread,$(SAN)),t,ub))san.so)
sanitized-acceptance: all
	tools/sanitized.sh $(O) $(SANLIB) $(PYTHON)

# ---- installing
INSTALL  ?= install
SETPLACE  = sed 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|; s|@VERSION@|$(VERSION)|; s|@INCLUDE@|$(shell realpath -m --relative-to=$(LIBDIR) $(PREFIX)/include)|'
install: $(O)/libphlox.so $(O)/libphlox_sim.so $(CUDALIB) $(GLOOLIB) $(NCCLLIB) $(MPILIB)
	@install -d $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(LIBDIR)/cmake/phlox $(DESTDIR)$(PREFIX)/include/phlox/ops
	$(INSTALL) -m 755 $(O)/libphlox.so $(DESTDIR)$(LIBDIR)/libphlox.so.$(VERSION)
	ln -sf libphlox.so.$(VERSION) $(DESTDIR)$(LIBDIR)/libphlox.so.0
	ln -sf libphlox.so.0 $(DESTDIR)$(LIBDIR)/libphlox.so
	$(INSTALL) -m 755 $(O)/libphlox_sim.so $(CUDALIB) $(GLOOLIB) $(NCCLLIB) $(MPILIB) $(DESTDIR)$(LIBDIR)/
	install -m 644 include/phlox/*.h include/phlox/*.def $(O)/gen/phlox/*.h $(DESTDIR)$(PREFIX)/include/phlox/
	install -m 644 $(OPHEAD) $(DESTDIR)$(PREFIX)/include/phlox/ops/
	@$(SETPLACE) phlox.pc.in >$(DESTDIR)$(LIBDIR)/pkgconfig/phlox.pc
	@$(SETPLACE) phlox-config.cmake.in >$(DESTDIR)$(LIBDIR)/cmake/phlox/phlox-config.cmake
	@$(SETPLACE) phlox-config-version.cmake.in >$(DESTDIR)$(LIBDIR)/cmake/phlox/phlox-config-version.cmake
# Without symbols for a debugger.
install-strip:
	@$(MAKE) --no-print-directory INSTALL='install -s --strip-program=$(STRIP)' install

clean:
	rm -rf build build-* python/phlox/*.so python/phlox/*.so.0
show: $(O)/opgen
	@$(O)/opgen --show $(OP) $(OPS)

.PHONY: all compile_commands.json cuda gloo mpi python stripped size tests test clean show check lint lint-files fuzz reliability bench bench-cuda bench-ops parity demo docs examples install install-strip asan ubsan tsan sanitized-acceptance
-include $(shell find $(O) -name '*.d' 2>/dev/null)
