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
