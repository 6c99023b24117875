/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "base/err.h"

#include <errno.h>
#include <stdbool.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hints.h"

/* Replaces control characters. Bytes of 0x80 and above are kept, because host names and paths may be UTF-8. */
static void clean(char *s)
{
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c < 0x20 || c == 0x7f)
            *s = '?';
    }
}

/* Ends a text that is too long with " ...". Cuts at the last "; ", because half of a remedy is of no use; else after the last
 * word. If more than a third would be lost, as with a long path, it cuts at the end of the buffer. */
static void cut(char *s, size_t size)
{
    static const char more[] = " ...";
    size_t most = size - sizeof(more), least = most / 3 * 2, at = most;

    while (at > least && strncmp(s + at, "; ", 2) != 0)
        at--;
    if (at == least)
        for (at = most; at > least && s[at] != ' '; at--)
            ;
    if (at == least)
        at = most;
    memcpy(s + at, more, sizeof(more));
}

static void store(char *dst, size_t size, const char *fmt, va_list ap)
{
    int n = vsnprintf(dst, size, fmt, ap);

    if (n < 0)
        dst[0] = '\0';
    else if ((size_t)n >= size)
        cut(dst, size);
    clean(dst);
}

void pvn_err_clear(struct pvn_err *err)
{
    if (err)
        memset(err, 0, sizeof(*err));
}

int pvn_err_set(struct pvn_err *err, int code, const char *fmt, ...)
{
    va_list ap;

    if (code == 0)
        code = -EIO;
    if (!err)
        return code;
    pvn_err_clear(err);
    err->code = code;
    err->n = 1;
    va_start(ap, fmt);
    store(err->reason[0], sizeof(err->reason[0]), fmt, ap);
    va_end(ap);
    return code;
}

int pvn_err_add(struct pvn_err *err, const char *fmt, ...)
{
    va_list ap;

    if (!err)
        return -EIO;
    if (err->code == 0)
        err->code = -EIO;
    if (err->n >= PVN_ERR_REASONS) {
        err->dropped++;
        return err->code;
    }
    va_start(ap, fmt);
    store(err->reason[err->n], sizeof(err->reason[0]), fmt, ap);
    va_end(ap);
    err->n++;
    return err->code;
}

void pvn_err_set_fault(struct pvn_err *err, enum pvn_fault fault)
{
    if (err)
        err->fault = fault;
}

void pvn_err_set_hint(struct pvn_err *err, int hint_id)
{
    if (err)
        err->hint = hint_id;
}

void pvn_err_set_who(struct pvn_err *err, const char *fmt, ...)
{
    va_list ap;

    if (!err)
        return;
    va_start(ap, fmt);
    store(err->who, sizeof(err->who), fmt, ap);
    va_end(ap);
}

void pvn_err_set_where(struct pvn_err *err, const char *fmt, ...)
{
    va_list ap;

    if (!err)
        return;
    va_start(ap, fmt);
    store(err->where, sizeof(err->where), fmt, ap);
    va_end(ap);
}

const char *pvn_worked_text(uint64_t ns, uint64_t msgs, uint64_t bytes, char *buf, size_t size)
{
    double s = (double)ns / 1e9;
    char time[32];

    if (s < 120)
        snprintf(time, sizeof(time), "%.1f s", s);
    else
        snprintf(time, sizeof(time), "%.0f min", s / 60);
    if (msgs)
        snprintf(buf, size, "the comm had worked for %s (%llu message%s, %llu bytes)", time,
                 (unsigned long long)msgs, msgs == 1 ? "" : "s", (unsigned long long)bytes);
    else
        snprintf(buf, size, "the comm had been up for %s and never carried a message", time);
    return buf;
}

const char *pvn_strerror(int code, char *buf, size_t size)
{
    const char *s;

    if (size == 0)
        return "";
    /* The GNU variant may return a static string and leave buf unchanged. */
    s = strerror_r(abs(code), buf, size);
    if (s != buf)
        snprintf(buf, size, "%s", s);
    return buf;
}

size_t pvn_str_append(char *buf, size_t size, const char *fmt, ...)
{
    size_t used = strnlen(buf, size);
    va_list ap;
    int n;

    if (used + 1 >= size)
        return used;
    va_start(ap, fmt);
    n = vsnprintf(buf + used, size - used, fmt, ap);
    va_end(ap);
    if (n < 0) {
        buf[used] = '\0';
        return used;
    }
    return used + (size_t)n < size ? used + (size_t)n : size - 1;
}

/* True if the root cause ends with the meaning of the errno: "send: Broken pipe". */
static bool says_meaning(const struct pvn_err *err, const char *meaning)
{
    size_t len = strlen(meaning), all = err->n ? strlen(err->reason[0]) : 0;

    return all >= len && strcmp(err->reason[0] + all - len, meaning) == 0;
}

size_t pvn_err_format(const struct pvn_err *err, char *buf, size_t size)
{
    const struct pvn_hint *hint = pvn_hint_get(err->hint);
    char desc[128];
    int i;

    if (size == 0)
        return 0;
    buf[0] = '\0';
    if (err->code == 0)
        return pvn_str_append(buf, size, "no error");
    for (i = err->n - 1; i >= 0; i--)
        pvn_str_append(buf, size, "%s%s", err->reason[i], i ? ": " : "");
    /* For wrong input the errno adds nothing to the reason. */
    if (err->n == 0 || (err->fault != PVN_FAULT_USAGE && err->fault != PVN_FAULT_ARGUMENT)) {
        pvn_strerror(err->code, desc, sizeof(desc));
        if (!says_meaning(err, desc))
            pvn_str_append(buf, size, "%s%s", err->n ? ": " : "", desc);
        pvn_str_append(buf, size, " (errno %d)", abs(err->code));
    }
    if (err->dropped)
        pvn_str_append(buf, size, " [%d more]", err->dropped);
    if (err->where[0])
        pvn_str_append(buf, size, "; local %s", err->where);
    if (err->who[0])
        pvn_str_append(buf, size, "; peer %s", err->who);
    if (hint)
        pvn_str_append(buf, size, "; likely: %s; try: %s", hint->likely, hint->todo);
    return strlen(buf);
}
