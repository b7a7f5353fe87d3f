/* SPDX-License-Identifier: MIT
 * fiber.c - threads that the kernel does not know.
 *
 * makecontext() makes them, and _setjmp() and _longjmp() switch: swapcontext() would ask the kernel
 * each time. Stacks are used again. The address sanitizer is told of each switch.
 */
#undef _FORTIFY_SOURCE /* it takes a jump to another stack for a mistake */
#include "sim/lib/fiber.h"

#include <setjmp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "base/mutex.h"
#include "harness/t.h"

#if T_ADDRESS_SANITIZER
#include <sanitizer/common_interface_defs.h>
#define STACK_SIZE (1024 * 1024)
#else
#define STACK_SIZE (256 * 1024)
#endif

struct fiber {
    jmp_buf       at;
    ucontext_t    context; /* for its first moment */
    bool          begun;
    void        (*fn)(void *);
    void         *arg;
    void         *stack;
    size_t        stack_size;
    void         *fake_stack; /* the sanitizer's */
#ifdef LOCK_ORDER
    struct mutexes held;
#endif
    struct fiber *next_idle;
};

static struct fiber first, *self, *idle, *left_behind;

struct fiber *fiber_self(void)
{
    if (!self) {
        first.begun = true;
        self = &first;
    }
    return self;
}

/* The one that has just been left is not used any more: another may have its stack. */
static void arrived(void)
{
#if T_ADDRESS_SANITIZER
    const void *bottom;
    size_t size;
    __sanitizer_finish_switch_fiber(self->fake_stack, &bottom, &size);
    if (!first.stack) { /* we come from there for the first time */
        first.stack = (void *)bottom;
        first.stack_size = size;
    }
#endif
    if (left_behind) {
        left_behind->next_idle = idle;
        idle = left_behind;
        left_behind = NULL;
    }
}

static void begin(void)
{
    arrived();
    self->fn(self->arg);
    abort();
}

struct fiber *fiber_new(void (*fn)(void *), void *arg)
{
    struct fiber *f = idle;
    fiber_self();
    if (f) {
        idle = f->next_idle;
    } else {
        f = calloc(1, sizeof *f);
        f->stack_size = STACK_SIZE;
        f->stack = mmap(NULL, STACK_SIZE, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);
        CHECK(f->stack != MAP_FAILED);
    }
    f->fn = fn;
    f->arg = arg;
    f->begun = false;
    f->fake_stack = NULL;
    return f;
}

static _Noreturn void enter(struct fiber *to, void **fake_stack)
{
#ifdef LOCK_ORDER
    mutex_switch(&self->held, &to->held);
#endif
    self = to;
#if T_ADDRESS_SANITIZER
    __sanitizer_start_switch_fiber(fake_stack, to->stack, to->stack_size);
#else
    (void)fake_stack;
#endif
    if (to->begun)
        _longjmp(to->at, 1);
    to->begun = true;
    getcontext(&to->context);
    to->context.uc_stack.ss_sp = to->stack;
    to->context.uc_stack.ss_size = to->stack_size;
    to->context.uc_link = NULL;
    makecontext(&to->context, begin, 0);
    setcontext(&to->context);
    abort();
}

void fiber_switch(struct fiber *to)
{
    struct fiber *me = self;
    if (to == me)
        return;
    if (_setjmp(me->at) == 0)
        enter(to, &me->fake_stack);
    arrived();
}

_Noreturn void fiber_leave(struct fiber *to)
{
    left_behind = self;
    enter(to, NULL);
}
