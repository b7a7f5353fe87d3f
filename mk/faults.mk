# SPDX-License-Identifier: MIT
# faults.mk - the matrix of faults and topologies (docs/faults.md).

$(B)/tests/faults.a: $(call obj,$(wildcard tests/faults/lib/*.c))
$(B)/tests/faults/%: $(B)/obj/tests/faults/%.o $(B)/tests/faults.a $(B)/tests/harness.a $(B)/tests/internal.a
	$(call Q,LINK) $(CC) $(ALL_L) -o $@ $^ $(LIB_LIBS) $(TEST_LIBS)

# The longest first.
FAULTS_C := $(shell ls -S tests/faults/*.c)
.PHONY: faults soak faults-programs
faults-programs: $(call programs,$(FAULTS_C)) $(B)/tests/clockshim.so $(B)/tests/diskshim.so \
    $(B)/holdfast

# All rows, or those of ROW= and TOPO=; the table is left in build/faults.
faults:
	@tools/deps.sh faults
	@tools/deps.sh valkey || echo 'holdfast: without a Valkey the row "versions" is skipped' >&2
	@$(MAKE) SAN=address faults-programs
	@ROW='$(ROW)' TOPO='$(TOPO)' tools/faults.sh $(FAULTS_C:%.c=build/asan/%)

# The same again and again with other seeds.
HOURS ?= 1
soak:
	@tools/deps.sh faults
	@tools/deps.sh valkey || echo 'holdfast: without a Valkey the row "versions" is skipped' >&2
	@$(MAKE) SAN=address faults-programs
	@ROW='$(ROW)' TOPO='$(TOPO)' HOURS='$(HOURS)' tools/faults.sh $(FAULTS_C:%.c=build/asan/%)
