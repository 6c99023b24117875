/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "base/param_value.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/addr.h"
#include "base/clock.h"

struct suffix {
    const char *text;
    int64_t factor;
};

/* The order matters for printing, which uses the first factor that divides the value. */
static const struct suffix size_suffixes[] = {{"G", INT64_C(1) << 30},
                                              {"M", INT64_C(1) << 20},
                                              {"K", INT64_C(1) << 10},
                                              {"GiB", INT64_C(1) << 30},
                                              {"MiB", INT64_C(1) << 20},
                                              {"KiB", INT64_C(1) << 10},
                                              {"GB", INT64_C(1) << 30},
                                              {"MB", INT64_C(1) << 20},
                                              {"KB", INT64_C(1) << 10},
                                              {"B", 1},
                                              {NULL, 0}};

static const struct suffix time_suffixes[] = {{"s", (int64_t)PVN_NS_PER_S},
                                              {"ms", (int64_t)PVN_NS_PER_MS},
                                              {"us", (int64_t)PVN_NS_PER_US},
                                              {"m", 60 * (int64_t)PVN_NS_PER_S},
                                              {"min", 60 * (int64_t)PVN_NS_PER_S},
                                              {"h", 3600 * (int64_t)PVN_NS_PER_S},
                                              {"d", 86400 * (int64_t)PVN_NS_PER_S},
                                              {"ns", 1},
                                              {NULL, 0}};

static int say(char *why, size_t size, int code, const char *text)
{
    snprintf(why, size, "%s", text);
    return code;
}

/* Parses a whole number, decimal or with 0x. *end points after it. Unlike in NCCL a leading 0 does not mean octal, which
 * no user intends. */
static int parse_number(const char *text, const char **end, int64_t *value)
{
    const char *digits = text + (*text == '-' || *text == '+');
    int base = digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X') ? 16 : 10;
    char *stop;

    if (!isdigit((unsigned char)digits[0]))
        return -EINVAL;
    errno = 0;
    *value = strtoll(text, &stop, base);
    *end = stop;
    return errno == ERANGE ? -ERANGE : 0;
}

static const struct suffix *find_suffix(const struct suffix *list, const char *text)
{
    for (; list->text; list++)
        if (strcasecmp(list->text, text) == 0)
            return list;
    return NULL;
}

static int64_t bare_factor(const struct pvn_param_def *def)
{
    const struct suffix *s = def->unit ? find_suffix(time_suffixes, def->unit) : NULL;

    return def->type == PVN_PARAM_DURATION && s ? s->factor : 1;
}

/* Parses a number with a suffix of the row's type. */
static int parse_scaled(const struct pvn_param_def *def, const char *text, int64_t *value,
                        char *why, size_t why_size)
{
    bool is_size = def->type == PVN_PARAM_SIZE;
    const struct suffix *s;
    int64_t factor;
    const char *end;
    int rc = parse_number(text, &end, value);

    if (rc == -EINVAL)
        return say(why, why_size, rc,
                   is_size ? "is not a size such as 64K" : "is not a time such as 5s");
    while (*end == ' ')
        end++;
    if (rc == 0 && *end) {
        s = find_suffix(is_size ? size_suffixes : time_suffixes, end);
        if (!s)
            return say(why, why_size, -EINVAL,
                       is_size
                           ? "has no unit of size behind the number (k, M or G)"
                           : "has no unit of time behind the number (ns, us, ms, s, m, h or d)");
        factor = s->factor;
    } else {
        factor = bare_factor(def);
    }
    if (rc || *value > INT64_MAX / factor || *value < INT64_MIN / factor)
        return say(why, why_size, -ERANGE, "is out of range");
    *value *= factor;
    return 0;
}

static const struct pvn_param_word *find_word(const struct pvn_param_def *def, const char *text)
{
    const struct pvn_param_word *w;

    for (w = def->words; w && w->word; w++)
        if (strcasecmp(w->word, text) == 0)
            return w;
    return NULL;
}

static int parse_int(const char *text, int64_t *value, char *why, size_t why_size)
{
    const char *end;
    int rc = parse_number(text, &end, value);

    if (rc == -EINVAL || *end)
        return say(why, why_size, -EINVAL, "is not a whole number");
    return rc ? say(why, why_size, rc, "is out of range") : 0;
}

static int parse_bool(const char *text, int64_t *value, char *why, size_t why_size)
{
    static const char *const words[][2] = {
        {"0", "1"}, {"no", "yes"}, {"n", "y"}, {"off", "on"}, {"false", "true"}};
    size_t i;

    for (i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcasecmp(text, words[i][0]) == 0 || strcasecmp(text, words[i][1]) == 0) {
            *value = strcasecmp(text, words[i][1]) == 0;
            return 0;
        }
    }
    return say(why, why_size, -EINVAL, "is neither 0 nor 1");
}

/* Checks a value that is stored as text. */
static int check_text(const struct pvn_param_def *def, const char *text, char *why, size_t why_size)
{
    uint8_t raw[16];
    unsigned bits;

    if (def->type == PVN_PARAM_NETWORK && *text && !pvn_addr_parse_network(text, raw, &bits))
        return say(why, why_size, -EINVAL, "is not a network");
    return 0;
}

/* True if a value of this type is stored as text. */
static bool is_text(enum pvn_param_type type)
{
    return type == PVN_PARAM_STRING || type == PVN_PARAM_LIST || type == PVN_PARAM_NETWORK;
}

/* Skips blanks at the start of *text, and returns the length without blanks at its end. */
static size_t trim(const char **text)
{
    size_t len;

    while (isspace((unsigned char)**text))
        (*text)++;
    len = strlen(*text);
    while (len && isspace((unsigned char)(*text)[len - 1]))
        len--;
    return len;
}

static int parse_scalar(const struct pvn_param_def *def, const char *text, int64_t *value,
                        char *why, size_t why_size)
{
    const struct pvn_param_word *w = find_word(def, text);
    int rc;

    if (w) {
        *value = w->value;
        return 0;
    }
    switch (def->type) {
    case PVN_PARAM_BOOL:
        return parse_bool(text, value, why, why_size);
    case PVN_PARAM_ENUM:
        return say(why, why_size, -EINVAL, "is not a choice");
    case PVN_PARAM_INT:
        rc = parse_int(text, value, why, why_size);
        break;
    default:
        rc = parse_scaled(def, text, value, why, why_size);
        break;
    }
    if (rc == 0 && (*value < def->min || *value > def->max))
        return say(why, why_size, -ERANGE, "is out of range");
    return rc;
}

int pvn_param_parse(const struct pvn_param_def *def, const char *text, struct pvn_params *out,
                    char *why, size_t why_size)
{
    void *field = (char *)out + def->offset;
    size_t len = trim(&text), i;
    char copy[PVN_PARAM_STR_LEN];
    int64_t value = 0;
    int rc;

    if (len >= sizeof(copy))
        return say(why, why_size, -ENAMETOOLONG, "is too long");
    memcpy(copy, text, len);
    copy[len] = '\0';
    for (i = 0; i < len; i++)
        if (iscntrl((unsigned char)copy[i]))
            return say(why, why_size, -EINVAL, "contains a control character");

    if (is_text(def->type)) {
        rc = check_text(def, copy, why, why_size);
        if (rc == 0)
            memcpy(field, copy, len + 1);
        return rc;
    }
    rc = parse_scalar(def, copy, &value, why, why_size);
    if (rc)
        return rc;
    switch (def->type) {
    case PVN_PARAM_BOOL:
        *(bool *)field = value != 0;
        break;
    case PVN_PARAM_SIZE:
    case PVN_PARAM_DURATION:
        *(uint64_t *)field = (uint64_t)value;
        break;
    default:
        *(int *)field = (int)value;
        break;
    }
    return 0;
}

bool pvn_param_is_nccl_unset(const struct pvn_param_def *def, const char *text)
{
    const char *end;
    int64_t value;

    if (def->type != PVN_PARAM_INT && def->type != PVN_PARAM_SIZE)
        return false;
    return parse_number(text, &end, &value) == 0 && !*end && (value == -1 || value == -2) &&
           value < def->min;
}

static void format_scaled(int64_t value, const struct suffix *list, int count, char *buf,
                          size_t size)
{
    int i;

    for (i = 0; i < count && value != 0; i++) {
        if (value % list[i].factor == 0) {
            snprintf(buf, size, "%" PRId64 "%s", value / list[i].factor, list[i].text);
            return;
        }
    }
    snprintf(buf, size, value ? "%" PRId64 "ns" : "0", value);
}

static void format_value(const struct pvn_param_def *def, int64_t value, char *buf, size_t size)
{
    const struct pvn_param_word *w;

    for (w = def->words; w && w->word; w++) {
        if (w->value == value) {
            snprintf(buf, size, "%s", w->word);
            return;
        }
    }
    if (def->type == PVN_PARAM_DURATION)
        format_scaled(value, time_suffixes, 3, buf, size);
    else if (def->type == PVN_PARAM_SIZE && value % 1024 == 0)
        format_scaled(value, size_suffixes, 3, buf, size);
    else
        snprintf(buf, size, "%" PRId64, value);
}

const char *pvn_param_format(const struct pvn_param_def *def, const struct pvn_params *params,
                             char *buf, size_t size)
{
    const void *field = (const char *)params + def->offset;

    switch (def->type) {
    case PVN_PARAM_STRING:
    case PVN_PARAM_LIST:
    case PVN_PARAM_NETWORK:
        snprintf(buf, size, "%s", (const char *)field);
        break;
    case PVN_PARAM_BOOL:
        snprintf(buf, size, "%d", *(const bool *)field);
        break;
    case PVN_PARAM_SIZE:
    case PVN_PARAM_DURATION:
        format_value(def, (int64_t) * (const uint64_t *)field, buf, size);
        break;
    default:
        format_value(def, *(const int *)field, buf, size);
        break;
    }
    return buf;
}

const char *pvn_param_range(const struct pvn_param_def *def, char *buf, size_t size)
{
    const struct pvn_param_word *w;
    char lo[32], hi[32];
    int listed = 0;

    buf[0] = '\0';
    switch (def->type) {
    case PVN_PARAM_BOOL:
        snprintf(buf, size, "0 or 1");
        break;
    case PVN_PARAM_STRING:
        snprintf(buf, size, "text of up to %d bytes", PVN_PARAM_STR_LEN - 1);
        break;
    case PVN_PARAM_LIST:
        snprintf(buf, size, "list separated by commas, up to %d bytes", PVN_PARAM_STR_LEN - 1);
        break;
    case PVN_PARAM_NETWORK:
        snprintf(buf, size, "ADDRESS/PREFIX, such as 10.1.0.0/16 or fd00::/64");
        break;
    case PVN_PARAM_ENUM:
        for (w = def->words; w->word; w++)
            pvn_str_append(buf, size, "%s%s", listed++ ? ", " : "one of ", w->word);
        break;
    case PVN_PARAM_INT:
        snprintf(buf, size, "%" PRId64 " to %" PRId64, def->min, def->max);
        for (w = def->words; w && w->word; w++)
            pvn_str_append(buf, size, " (%s: %d)", w->word, w->value);
        break;
    default:
        format_value(def, def->min, lo, sizeof(lo));
        format_value(def, def->max, hi, sizeof(hi));
        snprintf(buf, size, "%s to %s", lo, hi);
        for (w = def->words; w && w->word; w++)
            pvn_str_append(buf, size, ", or %s", w->word);
        break;
    }
    return buf;
}
