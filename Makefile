# SPDX-License-Identifier: MIT
# Makefile - the only build.
#
#:  make              build/holdfast, build/libholdfast.so, build/libholdfast.a
#:  make run          install what is missing, build, and show what it does
#:  make test         all tests; T=TEXT only those whose path contains TEXT; SEED=N
#:  make test-loaded  the same, ROUNDS=10 times, beside LOOPS=4 busy loops (CORES=0: on that core alone):
#:                    how often each test failed; T=TEXT
#:  make test-valkey  the live and command-line tests with a Valkey, which it installs; T=TEXT
#:  make test-web     the page of `holdfast web` in a headless Chromium, which it installs
#:  make test-debian13  `make run` and `make test` of a fresh clone in a chroot with Debian 13; root
#:  make install      PREFIX=/usr/local LIBDIR= DESTDIR=; make uninstall takes it away
#:  make dist         build/holdfast-VERSION.tar.gz, which builds without git
#:  make deb          Debian packages into build/deb; installs what is needed for that
#:  make test-deb     build, install, use and remove the packages, in chroots with Debian 12 and 13; root
#:  make test-builds  gcc and clang on Debian 12, 13 and sid, arm64 and i386, in chroots; root
#:  make bindings     the packages for Python and PHP, ready to be used, in build/python and build/php
#:  make wheel        the Python package with the library in it, as a wheel in build/
#:  make test-redis-py  redis-py's own lock tests on holdfast.compat; installs it into build/redis-py
#:  make interop      other lock libraries and ours on one key; installs them into build/interop
#:  make sim          the real scripts and the real client in random schedules full of faults, for
#:                    SECONDS=30 on each core; SEED=N; sim-bugs: it finds bugs put into the scripts
#:  make pictures     docs/pictures/*.svg, by tools/pictures.py
#:  make mutants      take one rule of tests/mutants away at a time: a test must fail; MUTANT=TEXT
#:  make faults       faults x topologies, each injected for real and counted: under an hour; ROW=TEXT
#:                    TOPO=SFCQ SEED=N; soak: for HOURS=1 (docs/faults.md)
#:  make models       prove the SPIN models of models/, and that each of their rules is needed
#:  make tidy         the rules of CONTRIBUTING.md that a machine can check
#:  make lint         clang-tidy, cppcheck, shellcheck, which it installs; SINCE=COMMIT;
#:                    lint-quick: without clang-tidy
#:  make test-tsan    more of the live tests under TSan; T=TEXT
#:  make test-valgrind  the tool under valgrind, which it installs
#:  make cover        lines and branches that the tests reach, into build/cover; T=TEXT
#:  make fuzz         libFuzzer until each target has had FUZZ_SECONDS=60 of a processor; JOBS=2
#:                    fuzz-keep: of what it found, copy what is worth keeping to tests/fuzz/corpus
#:  make bench        speed: one table of ratios against the aims, in under five minutes (bench/README.md)
#:  make bench-growth what must not grow with waiters, held locks, names, threads, clients
#:  make bench-peers  the same work by other lock libraries, which it installs into build/peers; PEERS=
#:  make peers-faults what becomes of their locks, and of ours, when something fails
#:  make stall        how long a stall of itself or of the server `holdfast run` survives
#:  make clean        remove build/
#:  knobs             SAN=address|thread (build/asan, build/tsan; lock order), WERROR=1, V=1,
#:                    CC, AR, OBJCOPY, PKG_CONFIG, CPPFLAGS, CFLAGS, LDFLAGS;
#:                    B=/tmp/b: `make` and `make install` write only there, not into the source tree;
#:                    TLS=linked (OpenSSL is not loaded when it is needed but linked)
#
# Sources are found by wildcard, header dependencies by the compiler: a new file needs no change
# here. Everything made lands under B (build/); each sanitizer has its own tree below it, so that
# switching never mixes objects. Other flags or another compiler than last time make all of it anew.

# ---- knobs: all may be given on the command line -------------------------------------------

PREFIX  ?= /usr/local
LIBDIR  ?= $(PREFIX)/lib
BINDIR  ?= $(PREFIX)/bin
INCDIR  ?= $(PREFIX)/include
MANDIR  ?= $(PREFIX)/share/man
BASHDIR ?= $(PREFIX)/share/bash-completion/completions
ZSHDIR  ?= $(PREFIX)/share/zsh/site-functions
FISHDIR ?= $(PREFIX)/share/fish/vendor_completions.d
DESTDIR ?=
SAN     ?=
T       ?=
FUZZ_SECONDS ?= 60

# Use every core unless told otherwise; sub-makes inherit it.
ifeq ($(MAKELEVEL)$(filter -j%,$(MAKEFLAGS)),0)
MAKEFLAGS += -j$(shell nproc 2>/dev/null || echo 2)
endif
MAKEFLAGS += --no-print-directory --no-builtin-rules
.SECONDARY:
.DELETE_ON_ERROR:
# One short line for each step; V=1 shows the commands.
Q = @mkdir -p $(@D); $(if $(V),set -x,printf '  %-5s %s\n' $(1) $@);

# ---- flags ---------------------------------------------------------------------------------

ifeq ($(origin CC),default)
CC := gcc
endif
OBJCOPY ?= objcopy
PKG_CONFIG ?= pkg-config
B := build
WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wswitch-enum -Wvla \
        -Wformat=2 -Wno-format-truncation
# Warnings stop the build only where we choose the compiler: a newer one must not break a user's.
ifneq ($(CI)$(filter 1,$(WERROR)),)
WARN += -Werror
endif

# clang warns of a warning that only gcc knows; to gcc this would be the unknown one.
ifneq ($(findstring clang,$(CC))$(filter fuzz,$(SAN)),)
WARN += -Wno-unknown-warning-option
endif

# $(call can,FLAGS): FLAGS, if this compiler takes them without a word.
can = $(shell $(CC) -O2 -Werror $(1) -include stdio.h -x c -S -o - /dev/null >/dev/null 2>&1 && \
        echo '$(1)')
fortify = -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=$(1)

ifeq ($(SAN),)
CFLAGS   ?= -O2 -g
# Fortify 3 needs a compiler that knows sizes at run time; the last two are of some processors only.
# Without the folder's name in it, two clones build the same.
HARDEN_C := $(or $(call can,$(call fortify,3)),$(call fortify,2)) -fstack-protector-strong \
            $(call can,-fstack-clash-protection) $(call can,-fcf-protection) \
            $(call can,-ffile-prefix-map=$(CURDIR)=.)
HARDEN_L := -Wl,-z,relro,-z,now,-z,noexecstack
PIE_C    := -fPIE
PIE_L    := -pie
else
# Fortify hides errors from the sanitizers, so their builds go without. They check the order of
# locks as well (base/mutex.h).
CFLAGS   ?= -O1 -g -fno-omit-frame-pointer
ifeq ($(SAN),address)
B        := build/asan
SANFLAGS := -fsanitize=address,undefined -fno-sanitize-recover=all
else ifeq ($(SAN),thread)
B        := build/tsan
SANFLAGS := -fsanitize=thread
else ifeq ($(SAN),fuzz)
B        := build/fuzz
CC       := clang
SANFLAGS := -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
else ifeq ($(SAN),cover)
B        := build/cover
CFLAGS   := -O0 -g
SANFLAGS := --coverage -fprofile-update=atomic
else
$(error SAN is address, thread, fuzz or cover, not "$(SAN)")
endif
endif

# Errors are hidden here because `make run` installs what is missing after this line was read;
# LIBS_OK makes a plain `make` say so.
LIBS_OK  := $(shell $(PKG_CONFIG) --exists openssl jansson ncursesw libmicrohttpd 2>/dev/null && echo yes)
PKG_C    := $(shell $(PKG_CONFIG) --cflags openssl jansson 2>/dev/null)
# OpenSSL is loaded when it is needed (src/net/openssl.h), or linked.
LIB_LIBS := $(if $(filter linked,$(TLS)),$(shell $(PKG_CONFIG) --libs openssl 2>/dev/null),-ldl) -pthread
ifeq ($(TLS),linked)
PKG_C    += -DOPENSSL_LINKED
endif
# The tests ask their servers by hiredis and not by the code under test.
TEST_LIBS := $(shell $(PKG_CONFIG) --libs hiredis 2>/dev/null)
CLI_LIBS := $(shell $(PKG_CONFIG) --libs jansson 2>/dev/null)
# Loaded by the command that needs them (cli/late.h): only their headers are used here.
SCREEN_C := $(filter -I%,$(shell $(PKG_CONFIG) --cflags ncursesw libmicrohttpd 2>/dev/null))
GEN      := $(B)/gen

# The live tests are compiled in a fifth of the time without the optimizer; they wait anyway.
ifneq ($(SAN),)
$(B)/obj/tests/live/%.o: LEVEL := -O0
endif

PIC   = -fPIC
ALL_C = -std=c11 -D_GNU_SOURCE $(if $(SAN),-DLOCK_ORDER) $(WARN) $(PIC) -fvisibility=hidden \
        -pthread $(HARDEN_C) -Iinclude $(INC) $(PKG_C) $(CPPFLAGS) $(CFLAGS) $(LEVEL) $(SANFLAGS)
ALL_L = $(HARDEN_L) -pthread $(SANFLAGS) $(LDFLAGS)

# A program's threads may have little stack. Sanitizers make larger frames.
ifeq ($(SAN),)
$(B)/obj/src/%.o:   WARN += -Wframe-larger-than=16384
endif

# cli/, bench/ and examples/ get only the public header, as a user's program does.
$(B)/obj/src/%.o:   INC = -Isrc -I$(GEN)
$(B)/obj/cli/%.o:   PIC = $(or $(PIE_C),-fPIC)
$(B)/obj/cli/%.o:   INC = -I$(GEN) $(SCREEN_C)
$(B)/obj/tests/%.o: INC = -Isrc -I$(GEN) -Itests
$(B)/obj/bench/%.o: INC = -Itests -Ibench

# ---- what there is -------------------------------------------------------------------------

VERSION := $(shell sed -n 's/^.define HF_VERSION  *"\(.*\)"/\1/p' include/holdfast.h)
SONAME  := libholdfast.so.$(firstword $(subst ., ,$(VERSION)))
REAL_SO := libholdfast.so.$(VERSION)

obj = $(patsubst %.c,$(B)/obj/%.o,$(1))
LIB_SRC  := $(wildcard src/*/*.c)
CLI_SRC  := $(wildcard cli/*.c)
HARNESS  := $(filter-out %shim.c %/fuzz_main.c,$(wildcard tests/harness/*.c))
MAN      := $(wildcard man/*.[1-8])
SCRIPTS  := $(wildcard tools/*.sh tests/*/*.sh examples/*.sh bench/*.sh bench/*/*.sh bindings/*/*/*.sh) .ci/run
programs = $(patsubst %.c,$(B)/%,$(1))
BENCHES  := $(call programs,$(wildcard bench/*.c))
# The example for libuv only where that is installed: nothing else here needs it.
UV_OK    := $(shell $(PKG_CONFIG) --exists libuv 2>/dev/null && echo yes)
EXAMPLES := $(call programs,$(filter-out $(if $(UV_OK),,%/libuv.c),$(wildcard examples/*.c)))
FUZZ_C   := $(wildcard tests/fuzz/*.c)
FUZZERS  := $(call programs,$(FUZZ_C))

# Tests whose path contains T. Threaded ones run twice: under ASan+UBSan and under TSan.
chosen    = $(if $(T),$(foreach t,$(1),$(if $(findstring $(T),$(t)),$(t))),$(1))
TEST_C   := $(call chosen,$(wildcard tests/unit/*.c tests/sim/*.c tests/live/*.c tests/faults/*.c tests/fuzz/*.c))
TEST_SH  := $(call chosen,$(wildcard tests/cli/*.sh tests/install/*.sh))
TEST_TSAN := $(filter tests/live/thread%,$(TEST_C))
# Searches twice as much without the sanitizers, in the same time.
TEST_PLAIN := $(filter tests/sim/search.c,$(TEST_C))
TEST_MODELS := $(call chosen,tools/models.sh)

# ---- build ---------------------------------------------------------------------------------

.PHONY: all dist deb test-deb run sim sim-bugs test test-valkey test-web test-debian13 test-programs interop models install uninstall tidy lint fuzz bench bench-growth bench-peers peers-faults stall clean help deps-missing test-builds mutants test-loaded
all: $(if $(LIBS_OK),,deps-missing) $(B)/holdfast $(B)/libholdfast.a $(B)/libholdfast.so $(B)/man/made
	@: # says nothing when nothing is to be done

deps-missing:
	@tools/deps.sh --check build

# What the objects were made with. It is written only when that changed, and then they are older.
MADE_WITH := $(filter-out -Werror,$(CC) $(AR) $(OBJCOPY) $(ALL_C) $(ALL_L) $(PIE_C) $(PIE_L))
$(B)/flags: FORCE
	@mkdir -p $(@D); printf '%s\n' '$(subst ','\'',$(MADE_WITH))' | cmp -s - $@ || \
	    printf '%s\n' '$(subst ','\'',$(MADE_WITH))' > $@
.PHONY: FORCE
FORCE:

$(B)/obj/%.o: %.c Makefile $(B)/flags
	$(call Q,CC) $(CC) $(ALL_C) -MMD -MP -c -o $@ $<

$(call obj,$(LIB_SRC) $(wildcard tests/*/*.c tests/*/*/*.c)): | $(GEN)/scripts.inc
$(GEN)/scripts.inc: tools/embed.sh $(wildcard src/lua/*.lua src/lua/part/*.lua)
	$(call Q,EMBED) tools/embed.sh $(filter-out %.sh src/lua/part/%,$^) > $@

$(call obj,$(CLI_SRC)): | $(GEN)/web.inc
$(GEN)/web.inc: tools/embed-web.sh $(wildcard cli/web/*)
	$(call Q,EMBED) tools/embed-web.sh $(filter-out %.sh,$^) > $@

# One object, its hidden names made local: internal names stay short and cannot clash with a
# user's, in the static library as in the shared one. The compiler links it, as it knows the linker
# of its processor, and how to make code of what it left for the link (LTO). Groups that a later
# link would choose from are dissolved, as their names become local too (i386).
RELOC_L = $(CFLAGS) $(filter -fuse-ld=% -flto% -m32 -m64 --target=% --sysroot=%,$(LDFLAGS)) \
    $(if $(findstring clang,$(CC)),,-flinker-output=nolto-rel) $(shell $(CC) $(LDFLAGS) -Wl,--help \
        2> /dev/null | grep -q -e --force-group-allocation && echo -Wl,--force-group-allocation)
$(B)/libholdfast.a: $(call obj,$(LIB_SRC))
	$(call Q,AR) $(CC) -r -nostdlib $(RELOC_L) -o $(B)/obj/holdfast.o $^ && \
	    $(OBJCOPY) --localize-hidden $(B)/obj/holdfast.o && \
	    rm -f $@ && $(AR) rcs $@ $(B)/obj/holdfast.o

$(B)/$(REAL_SO): $(call obj,$(LIB_SRC))
	$(call Q,LINK) $(CC) -shared -Wl,-soname,$(SONAME) -Wl,-z,nodelete $(if $(SAN),,-Wl,-z,defs) $(ALL_L) \
	    -o $@ $^ $(LIB_LIBS)
$(B)/libholdfast.so: $(B)/$(REAL_SO)
	@ln -sf $(REAL_SO) $(B)/$(SONAME) && ln -sf $(SONAME) $@

$(B)/holdfast: $(call obj,$(CLI_SRC)) $(B)/libholdfast.a
	$(call Q,LINK) $(CC) $(ALL_L) $(PIE_L) -o $@ $^ $(LIB_LIBS) $(CLI_LIBS)

# Tests see the internals too, so they link an archive in which those are still visible.
$(B)/tests/internal.a: $(call obj,$(LIB_SRC))
$(B)/tests/harness.a: $(call obj,$(HARNESS))
$(B)/tests/%.a:
	$(call Q,AR) rm -f $@ && $(AR) rcs $@ $^

$(B)/tests/%: $(B)/obj/tests/%.o $(B)/tests/harness.a $(B)/tests/internal.a
	$(call Q,LINK) $(CC) $(ALL_L) -o $@ $^ $(LIB_LIBS) $(TEST_LIBS)

# The simulation of the scripts needs Lua.
SIM_LIBS := $(shell $(PKG_CONFIG) --libs lua5.1 2>/dev/null) -lm -Wl,--wrap=identity_complete
$(B)/obj/tests/sim/%.o: PKG_C += $(shell $(PKG_CONFIG) --cflags lua5.1 2>/dev/null)
$(B)/tests/sim.a: $(call obj,$(wildcard tests/sim/lib/*.c))
$(B)/tests/sim/%: $(B)/obj/tests/sim/%.o $(B)/tests/sim.a $(B)/tests/harness.a $(B)/tests/internal.a
	$(call Q,LINK) $(CC) $(ALL_L) -o $@ $^ $(LIB_LIBS) $(TEST_LIBS) $(SIM_LIBS)

include mk/faults.mk

# A fuzz target brings no main: libFuzzer's under SAN=fuzz, else ours, which replays the corpus.
FUZZ_MAIN := $(if $(filter fuzz,$(SAN)),,$(B)/obj/tests/harness/fuzz_main.o)
$(B)/tests/fuzz/%: $(B)/obj/tests/fuzz/%.o $(FUZZ_MAIN) $(B)/tests/internal.a
	$(call Q,LINK) $(CC) $(ALL_L) $(if $(FUZZ_MAIN),,-fsanitize=fuzzer) -o $@ $^ $(LIB_LIBS)

# Preloaded into redis-server, which is not built with a sanitizer: so neither is this.
$(B)/tests/%shim.so: tests/harness/%shim.c
	$(call Q,LINK) $(CC) -std=c11 -D_GNU_SOURCE $(WARN) -O2 -g -fPIC -shared -o $@ $<

$(B)/bench/lib.a: $(call obj,$(wildcard bench/lib/*.c))
	$(call Q,AR) rm -f $@ && $(AR) rcs $@ $^
$(B)/bench/%: $(B)/obj/bench/%.o $(B)/bench/lib.a $(B)/tests/harness.a $(B)/libholdfast.a
	$(call Q,LINK) $(CC) $(ALL_L) -o $@ $^ $(LIB_LIBS) $(TEST_LIBS) -lm
$(B)/bench/tool: | $(B)/holdfast
$(B)/examples/%: $(B)/obj/examples/%.o $(B)/libholdfast.a
	$(call Q,LINK) $(CC) $(ALL_L) -o $@ $^ $(LIB_LIBS) $(EXAMPLE_LIBS)
$(B)/examples/libuv: EXAMPLE_LIBS = $(shell $(PKG_CONFIG) --libs libuv)
$(B)/obj/examples/libuv.o: INC = $(shell $(PKG_CONFIG) --cflags libuv)

# ---- bindings ------------------------------------------------------------------------------

# Debian's, as there its modules are. Any Python with cffi will do.
PYTHON ?= $(firstword $(wildcard /usr/bin/python3) python3)
PHP_SRC := $(wildcard bindings/php/*.php)
STAGE_PY = $(PYTHON) bindings/python/build.py
.PHONY: bindings wheel test-redis-py
bindings: $(B)/libholdfast.so $(B)/python/made $(B)/php/holdfast.h

# What both of them know of the library comes from its header.
$(GEN)/holdfast.cdef: tools/declare.sh include/holdfast.h
	$(call Q,DECL) CC='$(CC)' tools/declare.sh include/holdfast.h > $@

# In the tree the library lies beside; a distribution's package leaves that link out.
$(B)/python/made: $(GEN)/holdfast.cdef $(wildcard bindings/python/build.py bindings/python/holdfast/*)
	$(call Q,STAGE) $(STAGE_PY) stage $< $(VERSION) $(B)/python > /dev/null && \
	    ln -sf ../../$(SONAME) $(B)/python/holdfast/$(SONAME) && touch $@

$(B)/php/holdfast.h: $(GEN)/holdfast.cdef $(PHP_SRC)
	$(call Q,STAGE) cp $(PHP_SRC) $(B)/php/ && { printf '#define FFI_SCOPE "HOLDFAST"\n'; \
	    printf '#define FFI_LIB "%s"\n' $(SONAME); cat $<; } > $@

wheel:
	@tools/deps.sh python
	@$(MAKE) $(B)/libholdfast.so $(GEN)/holdfast.cdef
	@$(STAGE_PY) wheel $(GEN)/holdfast.cdef $(VERSION) $(B)/$(REAL_SO) $(B)

test-redis-py:
	@tools/deps.sh test
	@$(MAKE) all bindings
	@PYTHON='$(PYTHON)' bindings/python/tests/redis_py.sh

# ---- run and test --------------------------------------------------------------------------

# Each step is a make of its own: it must look for the libraries again after deps.sh.
run:
	@tools/deps.sh run
	@$(MAKE) all
	@PATH="$(CURDIR)/build:$$PATH" sh examples/show.sh

test: RUNNER := tools/run-tests.sh
test-loaded: RUNNER := tools/test-loaded.sh
test test-loaded:
	@tools/deps.sh test
	@$(if $(TEST_SH),$(MAKE) all bindings)
	@$(MAKE) SAN=address test-programs
	@$(if $(TEST_PLAIN),$(MAKE) $(TEST_PLAIN:%.c=build/%))
	@$(if $(TEST_TSAN),$(MAKE) SAN=thread test-programs)
	@HOLDFAST="$(CURDIR)/build/asan/holdfast" $(RUNNER) \
	    $(TEST_MODELS) $(TEST_C:%.c=build/asan/%) $(TEST_PLAIN:%.c=build/%) $(TEST_SH) $(TEST_TSAN:%.c=build/tsan/%)

# With another server program than the usual one: a Valkey, or what HF_TEST_SERVER names.
test-valkey:
	@tools/deps.sh test
	@[ -n "$$HF_TEST_SERVER" ] || tools/deps.sh valkey
	@$(if $(TEST_SH),$(MAKE) all bindings)
	@$(MAKE) SAN=address test-programs
	@HF_TEST_SERVER="$${HF_TEST_SERVER:-$$(command -v valkey-server)}" \
	    HOLDFAST="$(CURDIR)/build/asan/holdfast" tools/run-tests.sh \
	    $(patsubst %.c,build/asan/%,$(filter tests/live/% %/harness.c,$(TEST_C))) \
	    $(filter tests/cli/%,$(TEST_SH))

# Screenshots are left in build/web.
test-web:
	@tools/deps.sh web
	@$(MAKE) SAN=address build/asan/holdfast
	@HOLDFAST="$(CURDIR)/build/asan/holdfast" tools/run-tests.sh tests/web/chromium.sh

# Both commands of the README on a fresh system; see there for what is kept.
test-debian13:
	@T='$(T)' tools/debian13.sh

ifeq ($(SAN),thread)
test-programs: $(call programs,$(TEST_TSAN))
else
test-programs: $(call programs,$(TEST_C))
test-programs: $(if $(filter-out tests/unit/%,$(TEST_C) $(TEST_SH)),$(B)/holdfast $(EXAMPLES))
endif
test-programs: $(B)/tests/clockshim.so $(B)/tests/diskshim.so

# Other clients' locks and ours on one key. Installs those that Debian lacks into build/interop.
interop:
	@tools/deps.sh test
	@$(MAKE) all
	@$(MAKE) SAN=address build/asan/holdfast
	@tests/interop/install.sh
	@HOLDFAST="$(CURDIR)/build/asan/holdfast" tools/run-tests.sh \
	    tests/cli/neighbours.sh tests/interop/registries.sh

# One search for each core, far away from the others' seeds.
SECONDS ?= 30
sim:
	@tools/deps.sh sim
	@$(MAKE) build/tests/sim/search
	@first=$${SEED:-$$(date +%s)000000}; n=0; \
	    while [ $$n -lt $$(nproc) ]; do echo $$((first + n * 1000000000000)); n=$$((n + 1)); done | \
	    xargs -P 0 -I{} env SEED={} SIM_SECONDS=$(SECONDS) build/tests/sim/search I1
sim-bugs:
	@tools/deps.sh sim
	@$(MAKE) build/tests/sim/bugs
	@SIM_BUGS=1 build/tests/sim/bugs

.PHONY: pictures
pictures:
	@python3 tools/pictures.py

models:
	@tools/deps.sh models
	@tools/models.sh

# In a copy of the tree, build/mutants/tree, with the build of the tests.
mutants:
	@tools/deps.sh test
	@tools/mutants.sh $(MUTANT)

# A plot is left out without gnuplot.
bench bench-growth:
	@tools/deps.sh bench
	@tools/deps.sh plot || true
	@$(MAKE) all bench-programs
	@bench/run.sh $(if $(filter bench,$@),aim,growth)
# Other lock libraries, from their own registries. PEERS= are arguments of run.py.
bench-peers:
	@tools/deps.sh bench
	@$(MAKE) all $(B)/bench/peers/holdfast $(B)/bench/peers/hiredis
	@bench/peers/install.sh
	@python3 bench/peers/run.py $(PEERS)
# The same libraries when something fails: who is told of it.
peers-faults:
	@tools/deps.sh bench
	@$(MAKE) all $(B)/bench/peers/holdfast $(B)/bench/peers/hiredis
	@bench/peers/install.sh
	@python3 bench/peers/faults.py $(PEERS)
stall: all
	@HOLDFAST=$(B)/holdfast bench/stall.sh $(GRACES)
.PHONY: bench-programs fuzz-programs
bench-programs: $(BENCHES)
	@:

# What libFuzzer learns stays in build/; fuzz-keep copies what is worth keeping to tests/fuzz/corpus/NAME.
fuzz:
	@tools/deps.sh fuzz
	@$(MAKE) SAN=fuzz fuzz-programs
	@SECONDS_EACH=$(FUZZ_SECONDS) tools/fuzz.sh $(FUZZ_C:%.c=build/fuzz/%)
fuzz-programs: $(FUZZERS)
.PHONY: fuzz-keep
fuzz-keep:
	@tools/fuzz.sh --keep $(FUZZ_C:%.c=build/fuzz/%)

# Findings are errors. The analyzer is gcc's; another compiler builds the same objects without it.
TIDY_O := $(patsubst %.c,$(B)/tidy/%.o,$(LIB_SRC) $(CLI_SRC))
tidy:
	@tools/deps.sh build
	@$(MAKE) all tidy-objects
	tools/check-layers.sh .
	tools/check-locks.sh .
	tools/check-form.sh .
	tools/check-exports.sh build
	tools/check-hardening.sh build
	for s in $(SCRIPTS); do sh -n $$s || exit 1; done
.PHONY: tidy-objects
tidy-objects: $(TIDY_O)
$(TIDY_O): | $(GEN)/scripts.inc $(GEN)/web.inc
$(B)/tidy/src/%.o: INC = -Isrc -I$(GEN)
$(B)/tidy/cli/%.o: INC = -I$(GEN) $(SCREEN_C)
$(B)/tidy/%.o: %.c Makefile $(B)/flags
	$(call Q,TIDY) $(CC) $(ALL_C) -Werror $(if $(findstring gcc,$(CC)),-fanalyzer) -MMD -MP -c -o $@ $<

# Second opinions; the list of checks in .clang-tidy is short so that they stay worth reading. One
# file at a time: given several, clang-tidy 14 sees uninitialized va_lists everywhere. That takes
# some ten minutes: SINCE=COMMIT asks it only about what was changed since then. lint-quick leaves it
# out. A finding is an error.
LINT_C := -std=c11 -D_GNU_SOURCE -Iinclude -Isrc -Itests -I$(GEN)
LINT_ALL := $(LIB_SRC) $(CLI_SRC) $(wildcard tests/harness/*.c)
LINT_SRC = $(if $(SINCE),$(filter $(LINT_ALL),$(shell git diff --name-only $(SINCE) 2> /dev/null)),$(LINT_ALL))
lint: lint-quick
	@tools/deps.sh lint
	@$(MAKE) all
	printf '%s\n' $(LINT_SRC) | \
	    xargs -r -P 2 -I{} clang-tidy --quiet {} -- $(LINT_C) $(PKG_C)
.PHONY: lint-quick
lint-quick:
	@tools/deps.sh lint-quick
	cppcheck -j 2 --quiet --error-exitcode=1 --inline-suppr --std=c11 -D_GNU_SOURCE -Iinclude -Isrc \
	    --enable=warning,portability --suppress=missingInclude --suppress=unknownMacro \
	    --suppress=identicalInnerCondition src cli
	shellcheck -s sh -S warning -e SC2154,SC2164 $(SCRIPTS) # variables from lib.sh; set -e

# ---- install -------------------------------------------------------------------------------

# A page for each command and each part of the interface. The program says which options a command
# has: one that was built for another machine cannot, and then these pages are left out.
$(B)/man/made: tools/man-pages.sh man/holdfast.1 man/holdfast.3 $(B)/holdfast
	$(call Q,MAN) rm -rf $(@D)/man1 $(@D)/man3; if $(B)/holdfast --version > /dev/null 2>&1; \
	    then tools/man-pages.sh $(B)/holdfast $(@D); \
	    else echo '  $(B)/holdfast does not run here: no pages for single commands'; fi && touch $@

# In quotes: DESTDIR and the folders may have spaces.
D := $(DESTDIR)
install: all
	@tools/can-install.sh "$(D)$(BINDIR)" "$(D)$(LIBDIR)" "$(D)$(INCDIR)" "$(D)$(MANDIR)"
	install -d "$(D)$(BINDIR)" "$(D)$(LIBDIR)/pkgconfig" "$(D)$(INCDIR)" \
	    $(foreach s,$(sort $(subst .,,$(suffix $(MAN)))),"$(D)$(MANDIR)/man$(s)") \
	    "$(D)$(BASHDIR)" "$(D)$(ZSHDIR)" "$(D)$(FISHDIR)"
	install -m 755 $(B)/holdfast "$(D)$(BINDIR)/holdfast"
	install -m 644 include/holdfast.h include/holdfast.hpp "$(D)$(INCDIR)/"
	install -m 644 $(B)/libholdfast.a "$(D)$(LIBDIR)/libholdfast.a"
	install -m 755 $(B)/$(REAL_SO) "$(D)$(LIBDIR)/$(REAL_SO)"
	ln -sf $(REAL_SO) "$(D)$(LIBDIR)/$(SONAME)"
	ln -sf $(SONAME) "$(D)$(LIBDIR)/libholdfast.so"
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' -e 's|@INCDIR@|$(INCDIR)|' \
	    -e 's|@VERSION@|$(VERSION)|' -e 's|@REQUIRES@|$(if $(filter linked,$(TLS)),openssl)|' \
	    holdfast.pc.in > "$(D)$(LIBDIR)/pkgconfig/holdfast.pc"
	chmod 644 "$(D)$(LIBDIR)/pkgconfig/holdfast.pc"
	install -d "$(D)$(LIBDIR)/cmake/holdfast"
	for f in holdfast-config.cmake holdfast-config-version.cmake; do \
	    sed -e 's|@LIBDIR@|$(LIBDIR)|' -e 's|@INCDIR@|$(INCDIR)|' -e 's|@SONAME@|$(SONAME)|' \
	        -e 's|@REAL_SO@|$(REAL_SO)|' -e 's|@VERSION@|$(VERSION)|' share/cmake/$$f.in \
	        > "$(D)$(LIBDIR)/cmake/holdfast/$$f" || exit 1; \
	    chmod 644 "$(D)$(LIBDIR)/cmake/holdfast/$$f"; \
	done
	for m in $(MAN); do install -m 644 $$m "$(D)$(MANDIR)/man$${m##*.}/" || exit 1; done
	for s in $(B)/man/man[0-9]; do [ ! -d $$s ] || \
	    install -m 644 $$s/* "$(D)$(MANDIR)/$${s##*/}/" || exit 1; done
	install -m 644 share/completion/holdfast.bash "$(D)$(BASHDIR)/holdfast"
	install -m 644 share/completion/_holdfast "$(D)$(ZSHDIR)/_holdfast"
	install -m 644 share/completion/holdfast.fish "$(D)$(FISHDIR)/holdfast.fish"
	@[ -n "$(D)" ] || [ "$$(id -u)" != 0 ] || ldconfig

uninstall:
	rm -f "$(D)$(BINDIR)/holdfast" "$(D)$(INCDIR)/holdfast.h" "$(D)$(INCDIR)/holdfast.hpp" \
	    "$(D)$(LIBDIR)/libholdfast.a" "$(D)$(LIBDIR)/pkgconfig/holdfast.pc" \
	    "$(D)$(LIBDIR)"/libholdfast.so* "$(D)$(BASHDIR)/holdfast" "$(D)$(ZSHDIR)/_holdfast" \
	    "$(D)$(FISHDIR)/holdfast.fish"
	rm -rf "$(D)$(LIBDIR)/cmake/holdfast"
	for m in $(MAN); do rm -f "$(D)$(MANDIR)/man$${m##*.}/$${m##*/}"; done
	for m in $$(tools/man-pages.sh --list); do rm -f "$(D)$(MANDIR)/$$m"; done

# What git knows, or, in a tarball without git, all that is there.
DIST := holdfast-$(VERSION)
dist:
	@mkdir -p build
	@if [ -e .git ]; then git archive --format=tar --prefix=$(DIST)/ HEAD; \
	 else tar -cf - --exclude=./build --exclude=./debian/tmp --transform 's,^\.,$(DIST),' .; fi | \
	    gzip -9n > build/$(DIST).tar.gz
	@echo build/$(DIST).tar.gz

deb: dist
	@tools/deb.sh $(VERSION)

test-deb:
	@SUITE=bookworm tools/debian13.sh tools/test-deb.sh
	@SUITE=trixie tools/debian13.sh tools/test-deb.sh

test-builds:
	@tools/builds.sh

include mk/proof.mk

clean:
	rm -rf build

help:
	@sed -n 's/^#:  //p' Makefile

-include $(wildcard $(B)/obj/*/*.d $(B)/obj/*/*/*.d $(B)/obj/*/*/*/*.d $(B)/tidy/*/*.d $(B)/tidy/*/*/*.d)
