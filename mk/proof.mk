# SPDX-License-Identifier: MIT
# proof.mk - what is checked beside the tests: fuzz targets of the tool, valgrind, coverage.

# ---- fuzz targets of the tool --------------------------------------------------------------

# All of it but main(), in one object. Names that the library has inside, too, get others.
TOOL_O := $(call obj,$(filter-out cli/main.c,$(CLI_SRC))) $(B)/obj/tests/fuzz/tool_main.o
TOOL_NAMES := client_leave clock_now_ms embedded_dir
$(B)/obj/tests/fuzz/tool_main.o: cli/main.c Makefile $(B)/flags | $(GEN)/web.inc
	$(call Q,CC) $(CC) $(ALL_C) -Dmain=tool_main -Wno-missing-prototypes -MMD -MP -c -o $@ $<
$(B)/tests/tool.o: $(TOOL_O)
	$(call Q,LINK) $(CC) -r -nostdlib -o $@ $^ && \
	    $(OBJCOPY) $(foreach n,$(TOOL_NAMES),--redefine-sym $(n)=tool_$(n)) $@
$(B)/tests/fuzz/cli_%: $(B)/obj/tests/fuzz/cli_%.o $(B)/tests/tool.o $(FUZZ_MAIN) $(B)/tests/internal.a
	$(call Q,LINK) $(CC) $(ALL_L) $(if $(FUZZ_MAIN),,-fsanitize=fuzzer) -o $@ $^ $(LIB_LIBS) $(CLI_LIBS)

# ---- more of the tests under TSan, and the tool under valgrind -----------------------------

.PHONY: test-tsan test-valgrind cover
# All live tests beside those that `make test` runs so (thread*): the library has threads of its own.
# Bounds of memory and of wake-ups do not hold under TSan, one test has a pthread_create() of its own,
# and TSan does not follow all that a child of a process with threads does: such tests are left out.
TSAN_NOT := $(foreach t,fork embedded embedded_one async syscalls limits oom oom_calls watch_oom \
    deadlock_oom,tests/live/$(t).c)
TEST_TSAN_MORE = $(call chosen,$(filter-out tests/live/thread% $(TSAN_NOT),$(wildcard tests/live/*.c)))
test-tsan:
	@tools/deps.sh test
	@$(MAKE) SAN=thread $(TEST_TSAN_MORE:%.c=build/tsan/%) build/tsan/tests/clockshim.so \
	    build/tsan/tests/diskshim.so
	@$(MAKE) SAN=address build/asan/holdfast
	@HOLDFAST="$(CURDIR)/build/asan/holdfast" \
	    TSAN_OPTIONS=halt_on_error=1:atexit_sleep_ms=50:die_after_fork=0:report_thread_leaks=0 \
	    tools/run-tests.sh $(TEST_TSAN_MORE:%.c=build/tsan/%)

test-valgrind:
	@tools/deps.sh valgrind
	@$(MAKE) all
	@HOLDFAST="$(CURDIR)/build/holdfast" TEST_SECONDS=900 tools/run-tests.sh tests/valgrind/tool.sh

# ---- coverage ------------------------------------------------------------------------------

# A selection that takes minutes: T=TEXT chooses others, T=tests/ all of them.
COVER_C := $(if $(T),$(TEST_C),$(wildcard tests/unit/*.c) $(foreach t,mutex rwlock semaphore multi \
    election latch barrier once update break deadlock_one history inspect watch why quorum sentinel \
    cluster transaction timestamp oom_calls hostile,$(wildcard tests/live/$(t).c)))
COVER_SH := $(if $(T),$(TEST_SH),$(foreach t,run acquire look usage config history,tests/cli/$(t).sh))
cover:
	@tools/deps.sh test
	@$(MAKE) SAN=cover $(COVER_C:%.c=build/cover/%) build/cover/holdfast build/cover/tests/clockshim.so \
	    build/cover/tests/diskshim.so
	@find build/cover -name '*.gcda' -delete
	@HOLDFAST="$(CURDIR)/build/cover/holdfast" tools/run-tests.sh $(COVER_C:%.c=build/cover/%) \
	    $(COVER_SH) || echo 'holdfast: tests have failed: they count for what they reached'
	@tools/cover.sh build/cover
