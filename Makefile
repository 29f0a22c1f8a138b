# SPDX-License-Identifier: Apache-2.0
# `make` builds the library, the simulated devices, and the Python module if Python's headers are installed.
#   O=DIR        build folder                  CFLAGS, LDFLAGS  added to the library's own flags
#   SAN=address  sanitizers (address, undefined, thread, or a list); builds into build-SAN
#   TARGET=aarch64-linux-gnu  cross-compiles with the tools of that prefix; builds into build-TARGET
#   CUDA=0 GLOO=0 MPI=0  leave out a backend     WERROR=1  warnings are errors     V=1  show commands
SAN      ?=
TARGET   ?=
O        ?= build$(SAN:%=-%)$(TARGET:%=-%)
PYTHON   ?= python3
PREFIX   ?= /usr/local
LIBDIR   ?= $(PREFIX)/lib
VERSION  := $(shell sed -n 's/^#define PX_VERSION "\(.*\)"/\1/p' include/phlox/version.h)

# Programs that run during the build are compiled for the host.
HOSTCC   ?= $(if $(TARGET),cc,$(CC))
CC       := $(if $(filter default,$(origin CC)),$(TARGET:%=%-)$(if $(TARGET),gcc,$(CC)),$(CC))
OBJCOPY  ?= $(TARGET:%=%-)objcopy
STRIP    ?= $(TARGET:%=%-)strip
AR       := $(TARGET:%=%-)ar
MACHINE  := $(firstword $(subst -, ,$(or $(TARGET),$(shell $(CC) -dumpmachine))))
CLANG    := $(findstring clang,$(shell $(CC) --version))

# $(call say,CC) begins a recipe: it makes the target's folder and prints `CC  target`, or the command itself with V=1.
V        ?= 0
say       = $(if $(filter 1,$(V)),,@)mkdir -p $(@D); $(if $(filter 1,$(V))$(findstring s,$(firstword -$(MAKEFLAGS))),,printf '  %-8s %s\n' '$(1)' '$(patsubst $(O)/%,%,$@)';)
# $(call accepted,FLAGS): FLAGS if the compiler accepts them, else nothing.
accepted  = $(shell $(CC) -Werror $(1) -E -x c /dev/null >/dev/null 2>&1 && echo '$(1)')

WARN     := -Wall -Wextra -Wshadow -Wmissing-prototypes -Wstrict-prototypes -Wundef -Wvla -Wno-unused-parameter -Wno-psabi
FRAMES   := $(if $(SAN),,-Wframe-larger-than=4096)# bytes: a thread of the program may have a stack of 64 KiB
WARN     += $(FRAMES) $(if $(CLANG),-Wno-pass-failed -Wno-missing-field-initializers -Wno-ignored-attributes)
OPT      ?= $(if $(SAN),-O1 -g1,-O2 -g)
SANFLAGS := $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer -Wno-maybe-uninitialized $(if $(findstring undefined,$(SAN)),$(call accepted,-fsanitize=bounds-strict) -fno-sanitize-recover=all))
# A library loaded by Python cannot use the static TLS block; TLS descriptors are the fast alternative.
TLSFLAG  := $(call accepted,-mtls-dialect=gnu2)
# -fno-plt and aligned functions: 3 to 7 % of a small op called from Python. libcall: `rep movs` starts more slowly than memcpy.
CALLS    := $(call accepted,-mstringop-strategy=libcall) $(if $(SAN),,$(call accepted,-fno-plt -falign-functions=32) -fno-asynchronous-unwind-tables)
# x86-64 processors reorder instructions and cache decoded ones: unscheduled code without padded jumps deflates 5 % better. Not for the code of
# small calls: recording a Linear takes 5 % longer.
DENSE    := $(if $(filter x86_64,$(MACHINE)),$(call accepted,-fno-schedule-insns2 -fno-align-jumps -fno-align-labels))
# No contraction to FMA outside kernels: results do not depend on the compiler. (gcc -std=c11 implies it.)
CALLS    += $(if $(CLANG),-ffp-contract=off)
CFLAGS   ?= $(OPT)
COMPILE   = $(CC) $(TLSFLAG) $(CALLS) -std=c11 -D_GNU_SOURCE $(CFLAGS) $(WARN) $(if $(WERROR),-Werror) -fPIC -fvisibility=hidden -pthread $(SANFLAGS) $(CPPFLAGS)
INCLUDES := -Iinclude -Isrc -Ibackends -I$(O)/gen
# Packed relative relocations need glibc 2.36 at run time; RELR= leaves them out.
RELR     := $(shell t=$$(mktemp); echo 'int puts(const char *); char *s = ""; int f(void) { return puts(s); }' | $(CC) -x c - -shared -fPIC -Wl,-z,pack-relative-relocs -o $$t 2>/dev/null && grep -q GLIBC_ABI_DT_RELR $$t && echo -Wl,-z,pack-relative-relocs; rm -f $$t)
LINK      = $(CC) $(LDFLAGS) $(RELR) -pthread $(SANFLAGS)
TOOL      = $(HOSTCC) -std=c11 -D_GNU_SOURCE -O1 -g -Wall -Wextra
# $(call built,SOURCES): their object files.
built     = $(patsubst %.c,$(O)/%.o,$(1))
# $(call program,SOURCE FLAGS): compiles and links a program against libphlox.
program   = $(COMPILE) -Iinclude -I$(O)/gen -o $@ $(1) -L$(O) -lphlox $(LDFLAGS) -lm

OPS      := $(wildcard ops/*.op layers/*.layer optim/*.optim)
GEN      := $(O)/gen/stamp
CORE     := $(wildcard src/*/*.c src/*/*/*.c)
CPU      := $(wildcard backends/cpu/*/*.c)
ARCHIVES := -l:libjson-c.a

# Optional parts, built if their tools and headers are found.
CUDA     ?= $(if $(TARGET),0,1)
NVCC     := $(if $(SAN),,$(if $(filter 0,$(CUDA)),,$(firstword $(shell command -v nvcc) $(wildcard /usr/local/cuda/bin/nvcc))))
CUDALIB  := $(if $(NVCC),$(O)/libphlox_cuda.so)
GLOO     ?= $(if $(TARGET),,$(if $(wildcard /usr/include/gloo/context.h),$(shell command -v $(CXX))))
GLOOLIB  := $(if $(filter-out 0,$(GLOO)),$(O)/libphlox_gloo.so)
MPI      ?= $(if $(SAN)$(TARGET),,$(shell command -v mpicc))
MPILIB   := $(if $(filter-out 0,$(MPI)),$(O)/libphlox_mpi.so)
NCCLLIB  := $(O)/libphlox_nccl.so
BACKENDS := $(O)/libphlox_sim.so $(CUDALIB) $(GLOOLIB) $(NCCLLIB) $(MPILIB)

all: $(O)/libphlox.so $(if $(SAN),,$(O)/libphlox.a) $(O)/libphlox_sim.so $(NCCLLIB) cuda gloo mpi python
# $(call optional,LIBRARY NEEDS): says why a part is left out.
optional  = $(if $($(1)),,@$(if $(SAN)$(TARGET),:,echo '$@ backend not built: needs $(2) (or disabled)'))
cuda: $(CUDALIB)
	$(call optional,CUDALIB,nvcc)
gloo: $(GLOOLIB)
	$(call optional,GLOOLIB,libgloo-dev and a C++ compiler)
mpi: $(MPILIB)
	$(call optional,MPILIB,mpicc)

# ---- the generator and its output
# A file of generated code changes only if its text does, so a new op recompiles few files.
$(O)/opgen: $(wildcard tools/opgen/*.[ch]) include/phlox/dtype.h include/phlox/tables/dtypes.h
	$(call say,HOSTCC)$(TOOL) -Iinclude -Itools -o $@ $(filter %.c,$^)
$(GEN): $(O)/opgen $(OPS)
	@mkdir -p $(O)/gen/phlox/ops $(addprefix $(O)/gen/,hidden run_functions kernel_args vmap_rules)
	$(call say,OPGEN)$(O)/opgen $(O)/gen $(OPS)
	@touch $@
OPHEAD   := $(patsubst ops/%.op,$(O)/gen/phlox/ops/%.h,$(sort $(shell awk '/^  kind / && !/ hidden/ {print FILENAME}' ops/*.op)))
GENHEAD  := $(OPHEAD) $(addprefix $(O)/gen/,phlox/ops.h conditions.h phlox/layers.h phlox/optimizers.h layer_functions.h layer_samples.inc grad_functions.h \
  cpu_kernels.h convert_pairs.inc samples.inc typed_calls.inc)
GENSRC   := $(addprefix $(O)/gen/,ops_table.c $(patsubst %,ops_%.c,$(shell seq 0 31)) layers.c optim_kinds.c schedule_kinds.c)
CPUGEN   := kernels_cpu_table kernels_cpu_optim $(addprefix kernels_cpu_,$(shell seq 0 63))
CUDAGEN  := $(addprefix kernels_cuda_,0 1 2 3 4 5 6 7 complex fold optim)
$(GENSRC) $(GENHEAD) $(CPUGEN:%=$(O)/gen/%.c) $(CUDAGEN:%=$(O)/gen/%.cu) $(O)/gen/kernels_cuda_rows.c $(O)/gen/kernels_cuda_optim_rows.c: $(GEN) ;
$(foreach d,hidden run_functions vmap_rules kernel_args,$(O)/gen/$(d)/%.h): $(GEN) ;

# ---- the library
# Not performance-critical, compiled for size: I/O, collectives, set-up, and ops that call other ops for each batch.
COLD     := src/comm src/data src/io src/parallel src/script src/nn/layers src/optim src/device/profile src/autograd/rules \
  $(addprefix src/ops/,index vmap linalg statistics signal resize recurrent jit) \
  src/device/open $(addprefix python/ext/,declare autograd cuda dist io optim $(addprefix nn/,state utils init views class family) \
  $(addprefix ops/,library op_mismatch aten op_text fractional nested_tensors jit unique torch_ops vmap) $(addprefix tensor/,storage numpy dlpack generator legacy))
SMALL    := $(call built,$(foreach d,$(COLD),$(wildcard $(d).c $(d)/*.c))) $(patsubst %.c,%.o,$(filter-out %_table.c %_kinds.c,$(GENSRC)))
$(SMALL): CFLAGS := $(subst -O2,-Os,$(CFLAGS)) $(DENSE)
$(O)/%.o: %.c | $(GENHEAD)
	$(call say,CC)$(COMPILE) $(INCLUDES) -MMD -MP -c -o $@ $<
$(O)/gen/%.o: $(O)/gen/%.c
	$(call say,CC)$(COMPILE) $(INCLUDES) -MMD -MP -c -o $@ $<

# ---- CPU kernels: compiled once for each variant (base: any processor; v3: x86-64 with AVX2) and chosen at run time.
# Each variant is one object; all its names but the kernel table are local.
VARIANTS := base $(if $(SAN),,$(if $(filter x86_64,$(MACHINE)),v3))
ONCE     := threads linalg
ONCEOBJ  := $(patsubst backends/cpu/%.c,$(O)/once/%.o,$(wildcard $(foreach d,$(ONCE),backends/cpu/$(d)/*.c)))
KERNELS  := $(filter-out $(foreach d,$(ONCE),backends/cpu/$(d)/%),$(CPU))
# Math functions need not set errno or trap; NaN and infinity are kept. Signed integers wrap around. No -fcx-fortran-rules: GCC 12 then contracts
# complex products in vectors, but not in the tail of a row.
KFLAGS   := -fno-math-errno -fno-trapping-math -fwrapv $(DENSE)
ALIGN    := $(call accepted,-falign-functions=64 -falign-loops=32)
FAST     := -O3 $(ALIGN) $(call accepted,-fno-version-loops-for-strides)
# Vector loops without -O3's copies of loops for each condition and stride: half the code size, the same speed for long rows.
VECTOR   := -O2 $(call accepted,-ftree-vectorize -fvect-cost-model=dynamic -finline-functions --param=max-inline-insns-single=200 --param=max-inline-insns-auto=30 \
  --param=inline-min-speedup=15 --param=early-inlining-insns=14) $(call accepted,-fno-unswitch-loops -fno-version-loops-for-strides --param=vect-epilogues-nomask=0)
VECTORS  := $(VECTOR) $(ALIGN) $(call accepted,-fpeel-loops)
# $(call kernel_speed,VARIANT): by the folder of the source. Beside v3, base serves old processors: only products and convolutions are fast.
# Unscheduled products of integers take 10 to 20 % longer.
ORDER    := $(call accepted,-fschedule-insns2)
folder    = $(firstword $(subst /, ,$*))
kernel_speed = $(if $(SAN),,$(if $(filter $(1)v3,base$(lastword $(VARIANTS))),$(if $(filter conv gemm,$(folder)),$(VECTORS),-Os),$(if $(filter conv pairs fft random group integer,$(folder)),$(VECTORS),$(FAST))) $(if $(filter conv gemm integer,$(folder)),$(ORDER)))
define variant
$(O)/$(1)/%.o: backends/cpu/%.c | $$(GENHEAD)
	$$(call say,CC)$$(COMPILE) $$(INCLUDES) $$(KFLAGS) $(2) $$(call kernel_speed,$(1)) -DPX_CPU_TABLE=px__cpu_table_$(1) -MMD -MP -c -o $$@ $$<
$(O)/$(1)/kernels_cpu_%.o: $(O)/gen/kernels_cpu_%.c
	$$(call say,CC)$$(COMPILE) $$(INCLUDES) $$(KFLAGS) $(2) $(if $(SAN),,$$(if $$(filter optim,$$*),$(4),$(3))) -DPX_CPU_TABLE=px__cpu_table_$(1) -MMD -MP -c -o $$@ $$<
$(O)/cpu_$(1).o: $(KERNELS:backends/cpu/%.c=$(O)/$(1)/%.o) $(CPUGEN:%=$(O)/$(1)/%.o)
	$$(call say,LD)$$(CC) -r -nostdlib -o $$@ $$^ && $(OBJCOPY) --keep-global-symbol=px__cpu_table_$(1) $$@
endef
# Optimiser steps take up to three times as long without -O3's loops for each condition.
$(eval $(call variant,base,,$(if $(filter v3,$(VARIANTS)),-Os,$(VECTOR)),$(if $(filter v3,$(VARIANTS)),-Os,$(FAST))))
$(eval $(call variant,v3,-march=x86-64-v3,$(VECTOR) $(call accepted,-fno-tree-pre -falign-functions=16),$(FAST)))
$(O)/once/%.o: backends/cpu/%.c | $(GENHEAD)
	$(call say,CC)$(COMPILE) $(INCLUDES) $(KFLAGS) -MMD -MP -c -o $@ $<

COREOBJ  := $(call built,$(CORE)) $(GENSRC:%.c=%.o)
CPUOBJ   := $(VARIANTS:%=$(O)/cpu_%.o) $(ONCEOBJ)
# The folder of installed backends, searched last.
$(O)/src/base/libraries.o: CPPFLAGS += -DPX_BACKEND_FOLDER='"$(LIBDIR)/phlox"'
$(O)/libphlox.so: $(COREOBJ) $(CPUOBJ) src/exports.map
	$(call say,LD)$(LINK) -shared -Wl,-soname,libphlox.so.0 -Wl,--no-undefined -Wl,--version-script=src/exports.map -Wl,-Bsymbolic-functions -o $@ $(filter %.o,$^) $(ARCHIVES) -lm -ldl
	@ln -sf libphlox.so $(O)/libphlox.so.0
# One object, so that only public names are global. It contains json-c.
$(O)/libphlox.a: $(COREOBJ) $(CPUOBJ)
	$(call say,AR)$(CC) -r -nostdlib -o $(O)/phlox.o $^ $(ARCHIVES) && $(OBJCOPY) -w --keep-global-symbol='px_[!_]*' $(O)/phlox.o && rm -f $@ && $(AR) rcs $@ $(O)/phlox.o && rm $(O)/phlox.o
$(O)/libphlox_sim.so: $(call built,$(wildcard backends/sim/*.c))
	$(call say,LD)$(LINK) -shared -o $@ $^

# ---- engines of collectives: Gloo (the one file in C++), MPI, NCCL
$(O)/libphlox_gloo.so: backends/gloo/gloo.cc include/phlox/engine.h
	$(call say,CXX)$(CXX) -std=c++17 $(subst -O2,-Os,$(OPT)) -Wall -Wextra -Wshadow $(FRAMES) -Wno-unused-parameter $(if $(WERROR),-Werror) -fPIC -fvisibility=hidden -pthread $(SANFLAGS) -Iinclude $(CPPFLAGS) -shared -o $@ $< $(LDFLAGS) -lgloo
$(O)/libphlox_mpi.so: backends/mpi/mpi.c include/phlox/engine.h
	$(call say,MPICC)OMPI_CC='$(CC)' MPICH_CC='$(CC)' $(MPI) -std=gnu11 $(OPT) -Wall -Wextra -Wshadow $(FRAMES) $(if $(WERROR),-Werror) -fPIC -fvisibility=hidden -pthread -Iinclude $(CPPFLAGS) -shared -o $@ $< $(LDFLAGS)
# glibc before 2.40 (BZ 31372): a thread's first access through a TLS descriptor clobbers its caller's vector registers.
$(O)/backends/nccl/%.o $(O)/backends/cuda/%.o: TLSFLAG :=
$(NCCLLIB): $(O)/backends/nccl/nccl.o
	$(call say,LD)$(LINK) -shared -Wl,--no-undefined -o $@ $^ -ldl

# ---- the cuda backend: host code, and one fatbin for each .cu file, embedded in the library
NVFLAGS  ?= --compress-mode=size -O3 -diag-suppress 186,514
CUDAARCH ?= -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 -gencode arch=compute_90,code=compute_90
TOOLKIT  := $(patsubst %/cuda.h,%,$(firstword $(wildcard $(if $(NVCC),$(dir $(NVCC))../include/cuda.h) /usr/local/cuda/include/cuda.h)))
CUDAOBJ  := $(call built,$(wildcard backends/cuda/host/*/*.c)) $(addprefix $(O)/gen/,kernels_cuda_rows.o kernels_cuda_optim_rows.o) $(O)/gen/cuda_modules.o $(O)/gen/cuda_sources.o
CHAINTEXT := phlox/tables/dtypes.h=include/phlox/tables/dtypes.h cuda/params.h=backends/cuda/params.h scalars.h=backends/scalars.h \
  special.h=backends/special.h $(foreach f,standard device math fold chain,$f.cuh=backends/cuda/kernels/$f.cuh)
FATBINS  := $(patsubst backends/cuda/kernels/%.cu,$(O)/cuda/%.fatbin,$(wildcard backends/cuda/kernels/*.cu)) $(CUDAGEN:%=$(O)/cuda/%.fatbin)
$(CUDAOBJ): INCLUDES += $(addprefix -isystem ,$(TOOLKIT))
define fatbin
	$(call say,NVCC)$(NVCC) -std=c++17 $(NVFLAGS) $(CUDAARCH) -Iinclude -Ibackends -I$(O)/gen -MMD -MP -MF $@.d --fatbin -o $@ $<
endef
$(O)/cuda/%.fatbin: backends/cuda/kernels/%.cu | $(GENHEAD)
	$(fatbin)
# The same ops in chains are compiled without contraction, too (host/chain).
$(addprefix $(O)/cuda/,$(addsuffix .fatbin,$(filter-out %_optim,$(CUDAGEN)))): NVFLAGS += -fmad=false
$(O)/cuda/%.fatbin: $(O)/gen/%.cu
	$(fatbin)
$(O)/bin2c: tools/bin2c.c
	$(call say,HOSTCC)$(TOOL) -o $@ $<
$(O)/gen/cuda_modules.c: $(O)/bin2c $(FATBINS)
	$(call say,BIN2C)$(O)/bin2c $@ modules $(foreach f,$(FATBINS),$(basename $(notdir $f))=$f)
$(O)/gen/cuda_sources.c: $(O)/bin2c $(foreach f,$(CHAINTEXT),$(lastword $(subst =, ,$f)))
	$(call say,BIN2C)$(O)/bin2c $@ sources $(CHAINTEXT)
$(O)/libphlox_cuda.so: $(CUDAOBJ) backends/cuda/exports.map
	$(call say,LD)$(LINK) -shared -Wl,--no-undefined -Wl,--version-script=backends/cuda/exports.map -o $@ $(filter %.o,$^) -lm -ldl

# ---- Python
PYABI := $(if $(TARGET),$(PYINC) $(SOABI),$(shell $(PYTHON) -c 'import sysconfig; print(sysconfig.get_paths()["include"], sysconfig.get_config_var("SOABI"))' 2>/dev/null))
PYINC := $(firstword $(PYABI))
PYEXT := $(O)/_C$(if $(word 2,$(PYABI)),.$(word 2,$(PYABI))).so
# Rewritten if the interpreter changes: another Python needs another extension.
PYSTAMP  := $(O)/python/ext/abi
$(if $(PYABI),$(shell mkdir -p $(dir $(PYSTAMP)) && { echo '$(PYABI)' | cmp -s - $(PYSTAMP) || echo '$(PYABI)' >$(PYSTAMP); }))
python: $(if $(wildcard $(PYINC)/Python.h),$(if $(SAN)$(TARGET),$(PYEXT),$(O)/python/stamp))
# NDEBUG turns off the argument checks of CPython's inline functions, as in CPython's own modules.
$(O)/python/ext/%.o: python/ext/%.c $(PYSTAMP) | $(GENHEAD)
	$(call say,CC)$(COMPILE) $(if $(SAN),$(if $(findstring undefined,$(SAN)),-fno-sanitize=bounds-strict -fsanitize=bounds),-DNDEBUG) -Iinclude -Ipython/ext -I$(O)/gen -I$(PYINC) -Wno-cast-function-type -MMD -MP -c -o $@ $<
$(PYEXT): $(call built,$(wildcard python/ext/*/*.c)) $(O)/libphlox.so
	$(call say,LD)$(LINK) -shared -o $@ $(filter %.o,$^) -L$(O) -lphlox -Wl,-rpath,'$$ORIGIN'
# The module loads the libraries from its own folder.
$(O)/python/stamp: $(GEN) $(PYEXT) $(O)/libphlox.so $(BACKENDS) tools/stubs.py tools/members.pyi $(wildcard python/phlox/_*.py)
	$(call say,COPY)cp $(PYEXT) $(BACKENDS) python/phlox/ && rm -f python/phlox/_C.so
	@cp $(O)/libphlox.so python/phlox/libphlox.so.0
	@cp $(addprefix $(O)/gen/,_kinds.py _formulas.py _schedules.py) python/phlox/optim/
	$(call say,STUBS)PYTHONPATH=python $(PYTHON) tools/stubs.py $(O)/gen/_layers.pyi
	@touch $@
# The module's libraries without debug symbols, as a wheel has them.
$(O)/deflatable: tools/deflatable.c
	$(call say,HOSTCC)$(TOOL) -o $@ $<
stripped: all $(O)/deflatable
	@rm -rf $(O)/stripped && mkdir -p $(O)/stripped && $(STRIP) -o $(O)/stripped/libphlox.so.0 $(O)/libphlox.so
	@for library in $(PYEXT) $(BACKENDS); do $(STRIP) -o $(O)/stripped/$${library##*/} $$library || exit 1; done && $(O)/deflatable $(O)/stripped/*
size: stripped
	@tools/size.sh $(O)

# ---- tests: every tests/{unit,cts,call,ops,device,comm,fault,race,fuzz}/**/*.c is a program
TESTS    := $(foreach d,unit cts call ops device comm fault race fuzz,$(wildcard tests/$(d)/*.c tests/$(d)/*/*.c))
TESTINC  := $(FRAMES:%=-Wno-frame-larger-than) -Itests -Itests/ops -Itests/comm -Itests/unit -Itests/unit/device
TESTHEAD := $(wildcard tests/*.h tests/*/*.h tests/*/*/*.h tests/fuzz/corpus/*.inc)
TESTBIN  := $(TESTS:tests/%.c=$(O)/tests/%)
$(O)/tests/nccl/libnccl.so.2: tests/nccl/stub.c tests/nccl/stub.h
	$(call say,CC)$(COMPILE) -Itests -shared -o $@ $< $(LDFLAGS)
$(filter %/nccl_test,$(TESTBIN)): $(O)/tests/nccl/libnccl.so.2
# Unit tests link the library's objects; all others see the public headers only.
$(O)/tests/unit/%: tests/unit/%.c $(TESTHEAD) $(GENHEAD) $(COREOBJ) $(CPUOBJ) | $(BACKENDS)
	$(call say,CC)$(COMPILE) $(INCLUDES) $(TESTINC) -o $@ $< $(COREOBJ) $(CPUOBJ) $(LDFLAGS) $(ARCHIVES) -lm -ldl -rdynamic
$(O)/tests/%: tests/%.c $(TESTHEAD) $(GENHEAD) $(O)/libphlox.so | $(BACKENDS)
	$(call say,CC)$(call program,$(TESTINC) $<) -Wl,-rpath,'$$ORIGIN/../..:$$ORIGIN/../../..'
tests: all examples $(TESTBIN)
test: tests
	script/test --built
# Random cases for FUZZ_SECONDS (180) a fuzzer, from FUZZ_SEED (1).
fuzz: all $(filter $(O)/tests/fuzz/%,$(TESTBIN))
	tools/fuzz.sh $(O) $(PYTHON) $(if $(SAN),$(SANLIB))
# Reliability figures in one line; LONG=1 runs all night.
reliability: all $(filter $(O)/tests/fault/% $(O)/tests/fuzz/% $(O)/tests/race/% $(O)/tests/call/small_stack_test,$(TESTBIN))
	script/reliability $(O)
# Acceptance programs on a sanitizer build, by a Python that preloads the sanitizer's runtime.
SANLIB    = $(shell $(CC) -print-file-name=lib$(if $(findstring address,$(SAN)),a,$(if $(findstring thread,$(SAN)),t,ub))san.so)
sanitized-acceptance: all
	tools/sanitized.sh $(O) $(SANLIB) $(PYTHON)

# ---- examples, benchmarks, comparison with PyTorch's samples
$(O)/examples/%: examples/%.c $(O)/libphlox.so
	$(call say,CC)$(call program,$<) -lz -Wl,-rpath,'$$ORIGIN/..'
$(O)/bench/%: bench/%.c $(O)/libphlox.so
	$(call say,CC)$(call program,-Ibench $<) -Wl,-rpath,'$$ORIGIN/..'
$(O)/examples/libphlox_%.so: examples/backend/%.c $(wildcard include/phlox/*.h)
	$(call say,CC)$(COMPILE) -Iinclude -shared -o $@ $< $(LDFLAGS)
$(O)/examples/lib%_cuda.so: examples/own_op/%.cu
	$(call say,NVCC)$(NVCC) -std=c++17 $(CUDAARCH) -Iinclude -shared -Xcompiler -fPIC -o $@ $<
$(O)/examples/lib%.so: examples/own_op/%.c $(O)/libphlox.so
	$(call say,CC)$(call program,-shared $<) -Wl,-rpath,'$$ORIGIN/..'
examples: $(patsubst %.c,$(O)/%,$(wildcard examples/*.c)) $(patsubst examples/backend/%.c,$(O)/examples/libphlox_%.so,$(wildcard examples/backend/*.c)) \
  $(patsubst examples/own_op/%.c,$(O)/examples/lib%.so,$(wildcard examples/own_op/*.c)) $(if $(NVCC),$(patsubst examples/own_op/%.cu,$(O)/examples/lib%_cuda.so,$(wildcard examples/own_op/*.cu)))
BENCHES  := $(patsubst %.c,$(O)/%,$(wildcard bench/*.c))
bench: all $(BENCHES)
	$(PYTHON) $(if $(AGAINST),bench/turns.py $(AGAINST),bench/run.py $(O)/bench.json)
# The pages of docs/ and the generated reference, in $(O)/docs; as a site, in $(O)/site.
docs: $(GEN)
	@$(PYTHON) tools/docs.py $(O)
site: docs
	@PYTHON=$(PYTHON) tools/site.sh $(O)

# ---- checks
check: $(O)/libphlox.so $(O)/libphlox_sim.so
	@O=$(O) tools/check/all.sh
lint: $(GENHEAD)
	@tools/lint.sh $(O) $(PYINC) $(TOOLKIT)
compile_commands.json: Makefile
	@$(MAKE) --no-print-directory -Bn V=1 all | tools/compile_commands.sh "$(CURDIR)" >$@.new && mv $@.new $@
show: $(O)/opgen
	@$(O)/opgen --show $(OP) $(OPS)

# ---- installing
# STRIPPED=1: without debug symbols.
install: $(O)/libphlox.so $(O)/libphlox.a $(BACKENDS)
	@O=$(O) PREFIX=$(PREFIX) LIBDIR=$(LIBDIR) VERSION=$(VERSION) STRIP=$(if $(STRIPPED),$(STRIP)) tools/install.sh $^
install-strip:
	@$(MAKE) --no-print-directory STRIPPED=1 install
clean:
	rm -rf build build-* python/phlox/*.so python/phlox/*.so.0

.PHONY: all cuda gloo mpi python stripped size tests test fuzz reliability sanitized-acceptance examples bench docs site check lint show install install-strip clean
-include $(shell find $(O) -name '*.d' 2>/dev/null)
