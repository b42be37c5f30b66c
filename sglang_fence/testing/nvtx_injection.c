/*
 * An NVTX tool for tests: it writes every event of every NVTX domain to a file, one JSON object a line.
 *
 * NVTX calls do nothing until a tool is attached. A tool is a shared library, named by NVTX_INJECTION64_PATH and loaded
 * at the first NVTX call of a process. This is the smallest one that is of use; nvtx_injection.py builds it and reads
 * what it wrote. It needs no NVTX header: the few structures and numbers that the binary interface fixes are below.
 *
 *   SGLANG_FENCE_NVTX_LOG       the file, appended to; unset: the tool is attached and writes nothing (to measure cost)
 *   SGLANG_FENCE_NVTX_EXCLUDE   name of a domain that the tool doesn't want, as `nsys --nvtx-domain-exclude` has it
 *
 * Built with -DNVTX_INJECTION_CORE_ONLY it is a tool that knows no extension: no counters, no clock, no exclusion.
 *
 * Each line is one write() to a file opened with O_APPEND, so lines of threads and processes don't mix, and a process
 * that dies leaves all that it said. Handles are never freed: the process may use them until it ends.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

/* ------------------------------------------------------------------------------- What the binary interface fixes */

enum { TABLE_CALLBACKS = 1, MODULE_CORE2 = 5 };

/* Places in the function table of CORE2: the calls that name a domain. */
enum {
    DOMAIN_MARK = 1,
    DOMAIN_RANGE_START = 2,
    DOMAIN_RANGE_END = 3,
    DOMAIN_RANGE_PUSH = 4,
    DOMAIN_RANGE_POP = 5,
    DOMAIN_NAME_CATEGORY = 8,
    DOMAIN_REGISTER_STRING = 10,
    DOMAIN_CREATE = 12,
};

enum { EXTENSION_PAYLOAD = 2, EXTENSION_COUNTERS = 4 };
enum { PAYLOAD_DOMAIN_IS_ENABLED = 7, PAYLOAD_TIMESTAMP_GET = 8 };
enum { COUNTER_REGISTER = 0, COUNTER_SAMPLE_INT64 = 1, COUNTER_SAMPLE_FLOAT64 = 2, COUNTER_BATCH_SUBMIT = 5 };

enum { MESSAGE_ASCII = 1, MESSAGE_REGISTERED = 3 };
enum { VALUE_UINT64 = 1, VALUE_INT64 = 2, VALUE_DOUBLE = 3, VALUE_UINT32 = 4, VALUE_INT32 = 5, VALUE_FLOAT = 6 };
enum { SCHEMA_INT64 = 17, SCHEMA_FLOAT64 = 44 };
enum { SEMANTICS_COUNTER = 5 };

typedef void (*Function)(void);

typedef struct {
    size_t size;
    int (*functions_of)(int32_t module, Function ***table, unsigned int *count);
} Callbacks;

typedef const void *(*GetTable)(uint32_t id);

typedef struct {
    uint16_t version;
    uint16_t size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t value_type;
    int32_t reserved;
    union {
        uint64_t u64;
        int64_t i64;
        double f64;
        uint32_t u32;
        int32_t i32;
        float f32;
    } value;
    int32_t message_type;
    union {
        const char *ascii;
        const void *registered;
    } message;
} Attributes;

typedef struct {
    size_t id;
    size_t count;
    intptr_t *functions;
} Segment;

typedef struct {
    uint16_t nvtx_version;
    uint16_t size;
    uint16_t module;
    uint16_t compatible;
    size_t segment_count;
    Segment *segments;
    intptr_t (*get_function)(uint32_t id);
    const void *info;
} Extension;

typedef struct Semantics {
    uint32_t size;
    uint16_t kind;
    uint16_t version;
    const struct Semantics *next;
} Semantics;

typedef struct {
    Semantics header;
    uint64_t flags;
    const char *unit;
} CounterSemantics;

typedef struct {
    size_t size;
    uint64_t schema;
    const char *name;
    const char *description;
    uint64_t scope;
    const Semantics *semantics;
    uint64_t id;
} CounterAttributes;

typedef struct {
    uint64_t counter;
    const void *values;
    size_t values_size;
    uint64_t flags;
    const int64_t *timestamps;
    size_t timestamps_size;
} CounterBatch;

/* ------------------------------------------------------------------------------------------- What this tool keeps */

typedef struct Category {
    uint32_t id;
    const char *name;
    struct Category *next;
} Category;

typedef struct {
    const char *name;
    Category *categories;
} Domain;

typedef struct {
    const char *text;
} Registered;

typedef struct {
    const char *name;
    const char *unit;
    uint64_t schema;
} Counter;

static int log_file = -1;
static pthread_once_t log_opened = PTHREAD_ONCE_INIT;
static pthread_mutex_t category_lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local long thread_id;

static void *keep(size_t size)
{
    void *kept = calloc(1, size);
    if (kept == NULL)
        abort();
    return kept;
}

static const char *keep_text(const char *text)
{
    if (text == NULL)
        return NULL;
    char *kept = keep(strlen(text) + 1);
    strcpy(kept, text);
    return kept;
}

static void open_log(void)
{
    const char *path = getenv("SGLANG_FENCE_NVTX_LOG");
    if (path == NULL || *path == '\0')
        return;
    log_file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (log_file < 0)
        fprintf(stderr, "nvtx_injection: can't write SGLANG_FENCE_NVTX_LOG %s\n", path);
}

/* ------------------------------------------------------------------------------------------------ Writing a line */

enum { LINE_SIZE = 4096, TEXT_SIZE = 512 };

typedef struct {
    char text[LINE_SIZE];
    size_t length;
} Line;

/* At the most three texts of TEXT_SIZE bytes, each escaped to at the most twice that, and some numbers fit. */
static void put(Line *line, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int wrote = vsnprintf(line->text + line->length, LINE_SIZE - line->length, format, arguments);
    va_end(arguments);
    if (wrote > 0 && (size_t)wrote < LINE_SIZE - line->length)
        line->length += (size_t)wrote;
}

static void put_char(Line *line, char one)
{
    if (line->length < LINE_SIZE - 1)
        line->text[line->length++] = one;
}

static void put_text(Line *line, const char *key, const char *text)
{
    if (text == NULL) {
        put(line, ", \"%s\": null", key);
        return;
    }
    put(line, ", \"%s\": \"", key);
    for (size_t i = 0; text[i] != '\0' && i < TEXT_SIZE; i++) {
        unsigned char byte = (unsigned char)text[i];
        if (byte == '"' || byte == '\\')
            put_char(line, '\\');
        put_char(line, (char)(byte < 0x20 ? ' ' : byte));
    }
    put_char(line, '"');
}

static void put_double(Line *line, double value)
{
    if (isnan(value))
        put(line, ", \"payload\": NaN");
    else if (isinf(value))
        put(line, ", \"payload\": %sInfinity", value < 0 ? "-" : "");
    else
        put(line, ", \"payload\": %.17g", value);
}

static void begin(Line *line, const char *event, const Domain *domain)
{
    if (thread_id == 0)
        thread_id = syscall(SYS_gettid);
    line->length = 0;
    put(line, "{\"event\": \"%s\", \"thread\": %ld", event, thread_id);
    put_text(line, "domain", domain == NULL ? NULL : domain->name);
}

static void end(Line *line)
{
    put(line, "}\n");
    if (write(log_file, line->text, line->length) != (ssize_t)line->length)
        fprintf(stderr, "nvtx_injection: a line of the log is lost\n");
}

static const char *category_name(const Domain *domain, uint32_t id)
{
    const char *name = NULL;
    pthread_mutex_lock(&category_lock);
    for (const Category *one = domain == NULL ? NULL : domain->categories; one != NULL && name == NULL; one = one->next)
        if (one->id == id)
            name = one->name;
    pthread_mutex_unlock(&category_lock);
    return name;
}

static void put_value(Line *line, const Attributes *attributes)
{
    static const char *const names[] = {"none", "uint64", "int64", "double", "uint32", "int32", "float"};
    int32_t type = attributes->value_type;
    put(line, ", \"payload_type\": \"%s\"", type >= 0 && type <= VALUE_FLOAT ? names[type] : "extended");
    if (type == VALUE_UINT64)
        put(line, ", \"payload\": %llu", (unsigned long long)attributes->value.u64);
    else if (type == VALUE_INT64)
        put(line, ", \"payload\": %lld", (long long)attributes->value.i64);
    else if (type == VALUE_UINT32)
        put(line, ", \"payload\": %u", attributes->value.u32);
    else if (type == VALUE_INT32)
        put(line, ", \"payload\": %d", attributes->value.i32);
    else if (type == VALUE_DOUBLE)
        put_double(line, attributes->value.f64);
    else if (type == VALUE_FLOAT)
        put_double(line, (double)attributes->value.f32);
}

static void write_event(const char *event, const Domain *domain, const Attributes *attributes)
{
    if (log_file < 0)
        return;
    Line line;
    const char *message = NULL;
    if (attributes->message_type == MESSAGE_ASCII)
        message = attributes->message.ascii;
    else if (attributes->message_type == MESSAGE_REGISTERED && attributes->message.registered != NULL)
        message = ((const Registered *)attributes->message.registered)->text;
    begin(&line, event, domain);
    put_text(&line, "message", message);
    put(&line, ", \"category\": %u", attributes->category);
    put_text(&line, "category_name", category_name(domain, attributes->category));
    if (attributes->color_type != 0)
        put(&line, ", \"color\": %u", attributes->color);
    put_value(&line, attributes);
    end(&line);
}

static void write_end(const char *event, const Domain *domain)
{
    if (log_file < 0)
        return;
    Line line;
    begin(&line, event, domain);
    end(&line);
}

/* ------------------------------------------------------------------------------------- What NVTX calls: the core */

static void domain_mark(Domain *domain, const Attributes *attributes)
{
    write_event("mark", domain, attributes);
}

static int domain_range_push(Domain *domain, const Attributes *attributes)
{
    write_event("push", domain, attributes);
    return 0;
}

static int domain_range_pop(Domain *domain)
{
    write_end("pop", domain);
    return 0;
}

static uint64_t domain_range_start(Domain *domain, const Attributes *attributes)
{
    static uint64_t ids;
    write_event("start", domain, attributes);
    return __atomic_add_fetch(&ids, 1, __ATOMIC_RELAXED);
}

static void domain_range_end(Domain *domain, uint64_t id)
{
    (void)id;
    write_end("end", domain);
}

static void *domain_create(const char *name)
{
    Domain *domain = keep(sizeof *domain);
    domain->name = keep_text(name);
    return domain;
}

static void *domain_register_string(Domain *domain, const char *text)
{
    (void)domain;
    Registered *registered = keep(sizeof *registered);
    registered->text = keep_text(text);
    return registered;
}

static void domain_name_category(Domain *domain, uint32_t id, const char *name)
{
    if (domain == NULL)
        return;
    Category *category = keep(sizeof *category);
    category->id = id;
    category->name = keep_text(name);
    pthread_mutex_lock(&category_lock);
    category->next = domain->categories;
    domain->categories = category;
    pthread_mutex_unlock(&category_lock);
}

/* -------------------------------------------------------------------------------- What NVTX calls: its extensions */

#ifndef NVTX_INJECTION_CORE_ONLY

static uint8_t domain_is_enabled(const Domain *domain)
{
    const char *excluded = getenv("SGLANG_FENCE_NVTX_EXCLUDE");
    return excluded == NULL || domain == NULL || domain->name == NULL || strcmp(excluded, domain->name) != 0;
}

static int64_t timestamp_get(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static uint64_t counter_register(Domain *domain, const CounterAttributes *attributes)
{
    (void)domain;
    Counter *counter = keep(sizeof *counter);
    counter->name = keep_text(attributes->name);
    counter->schema = attributes->schema;
    for (const Semantics *one = attributes->semantics; one != NULL; one = one->next)
        if (one->kind == SEMANTICS_COUNTER)
            counter->unit = keep_text(((const CounterSemantics *)one)->unit);
    return (uint64_t)(uintptr_t)counter;
}

static void write_sample(const Domain *domain, uint64_t id, int is_double, const void *value, const int64_t *timestamp)
{
    if (log_file < 0 || id == 0)
        return;
    Line line;
    int64_t integer;
    double real;
    const Counter *counter = (const Counter *)(uintptr_t)id;
    begin(&line, "sample", domain);
    put_text(&line, "message", counter->name);
    put_text(&line, "unit", counter->unit);
    put(&line, ", \"payload_type\": \"%s\"", is_double ? "double" : "int64");
    if (is_double) {
        memcpy(&real, value, sizeof real);
        put_double(&line, real);
    } else {
        memcpy(&integer, value, sizeof integer);
        put(&line, ", \"payload\": %lld", (long long)integer);
    }
    if (timestamp != NULL)
        put(&line, ", \"timestamp\": %lld", (long long)*timestamp);
    end(&line);
}

static void counter_sample_int64(const Domain *domain, uint64_t id, int64_t value)
{
    write_sample(domain, id, 0, &value, NULL);
}

static void counter_sample_float64(const Domain *domain, uint64_t id, double value)
{
    write_sample(domain, id, 1, &value, NULL);
}

static void counter_batch_submit(const Domain *domain, const CounterBatch *batch)
{
    const Counter *counter = (const Counter *)(uintptr_t)batch->counter;
    if (counter == NULL || (counter->schema != SCHEMA_INT64 && counter->schema != SCHEMA_FLOAT64))
        return; /* Counters of several fields aren't read. */
    for (size_t i = 0; i < batch->values_size / 8 && i < batch->timestamps_size / 8; i++)
        write_sample(domain, batch->counter, counter->schema == SCHEMA_FLOAT64, (const char *)batch->values + 8 * i,
                     batch->timestamps + i);
}
#endif

/* --------------------------------------------------------------------------------------------------- Entry points */

/* Called once for each copy of NVTX in the process: it is header-only, so each library that uses it has one. */
EXPORT int InitializeInjectionNvtx2(GetTable get_table);
EXPORT int InitializeInjectionNvtx2(GetTable get_table)
{
    const Callbacks *callbacks = get_table(TABLE_CALLBACKS);
    Function **table = NULL;
    unsigned int count = 0;
    if (callbacks == NULL || callbacks->size < sizeof *callbacks)
        return 0;
    if (!callbacks->functions_of(MODULE_CORE2, &table, &count) || count <= DOMAIN_CREATE)
        return 0;
    pthread_once(&log_opened, open_log);
    *table[DOMAIN_MARK] = (Function)domain_mark;
    *table[DOMAIN_RANGE_START] = (Function)domain_range_start;
    *table[DOMAIN_RANGE_END] = (Function)domain_range_end;
    *table[DOMAIN_RANGE_PUSH] = (Function)domain_range_push;
    *table[DOMAIN_RANGE_POP] = (Function)domain_range_pop;
    *table[DOMAIN_NAME_CATEGORY] = (Function)domain_name_category;
    *table[DOMAIN_REGISTER_STRING] = (Function)domain_register_string;
    *table[DOMAIN_CREATE] = (Function)domain_create;
    return 1;
}

/* A tool from before the extensions: what it doesn't export, NVTX takes for absent. */
#ifndef NVTX_INJECTION_CORE_ONLY
static void set(const Extension *extension, size_t place, intptr_t function)
{
    if (place < extension->segments->count)
        extension->segments->functions[place] = function;
}

EXPORT int InitializeInjectionNvtxExtension(Extension *extension);
EXPORT int InitializeInjectionNvtxExtension(Extension *extension)
{
    if (extension->segment_count == 0)
        return 0;
    if (extension->module == EXTENSION_PAYLOAD) {
        set(extension, PAYLOAD_DOMAIN_IS_ENABLED, (intptr_t)domain_is_enabled);
        set(extension, PAYLOAD_TIMESTAMP_GET, (intptr_t)timestamp_get);
    } else if (extension->module == EXTENSION_COUNTERS) {
        set(extension, COUNTER_REGISTER, (intptr_t)counter_register);
        set(extension, COUNTER_SAMPLE_INT64, (intptr_t)counter_sample_int64);
        set(extension, COUNTER_SAMPLE_FLOAT64, (intptr_t)counter_sample_float64);
        set(extension, COUNTER_BATCH_SUBMIT, (intptr_t)counter_batch_submit);
    }
    return 1;
}
#endif
