#!/usr/bin/env python3
"""Finds unclear wording in Markdown, C++ comments, identifiers, and error and help texts.

  prose_check.py [--root DIR] [--changed BASE] [--rules A,B] [--counts] [--sample N [--seed S]] [PATH ...]

Prints FILE:LINE: rule: excerpt, and exits 1 if there is a hit. --changed reports only lines that `git diff BASE` adds:
BASE is a commit (compared with the working tree) or a range A..B. Hits listed in prose_exceptions.tsv, next to this
script, are not reported.
"""
import argparse, collections, fnmatch, os, random, re, subprocess, sys

# rule | pattern within one sentence, case ignored; ^ is the start of a sentence, cell, comment or text | use instead
TABLE = r'''
starts-of    | ^of (?!course)                                                   | begin with the subject: "dropout on the input", not "of what is read"
starts-who   | ^(?:who|whoever|whose)\b(?!.*\?$)                                | name the actor: "the caller", "the rank that", or an imperative
starts-what  | ^what(?:ever)?\b(?!.*\?$)                                        | a noun: "the activations", "returns the"
starts-where | ^(?-i:Where)\b[^?]*,                                             | "if", "when", or the place at the end
who-noun     | \b(?:for|by|of|to|from|than|with|and|or|but) (?:who|whoever)\b(?! (?:are|were|do|did)\b) | name the actor: caller, rank, code
what-noun    | (?<!description )(?<!overview )(?<!summary )(?<!regardless )(?<!sense )PREP what\b(?! to\b)|[,;:] ?(?:and |or )?what\b(?! (?:if|about|not|to)\b)(?!.*\?$)|\b(?:and|or) what\b(?! to\b)(?!.*\?$) | a noun in place of the clause
so-many      | \bso (?:many|much|few|often)\b(?! (?:as|that|so)\b)              | the number: N, `count`, "that number of"
as-says      | \bas [\w./` '-]{1,40}? (?:says?|said|ha(?:s|ve) (?:it|them))\b|\b(?:says?|said) of\b|\bit is (?:not )?said\b | "see X", "as specified by X"
semicolons   |                                                                  | at most two semicolons in a sentence: split it, or make a list
long         |                                                                  | at most 35 words in a sentence
verb-first   |                                                                  | an error text needs its own subject: the value or the thing that failed
cell         |                                                                  | a description cell is a noun phrase or a sentence
beside       | \bbeside\b                                                       | next to, in addition to, with, compared with
told         | \b(?:is|are|was|were|be|been|gets?|not|being) told\b(?! apart)   | is passed, is notified, receives
lies         | \b(?:lies|lie|lay|lain|lying) (?:in|on|at|there|as|where|outside|within|apart|together|between|behind|over|under|still|with|by|ready)\b|\bwhere [\w' ]{1,30} lies?\b | is in, is stored in, is placed on
stands       | \b(?:stands|stand|stood) (?:in|on|at|as|there|where|for (?:who|what)|outside|within|between|behind|beside|before|just|by|under)\b | is in, is listed in, precedes
given-up     | \bgiven up\b|\bg(?:ives?|ave) up (?:a|the|its)\b                 | aborted, released
honour       | \b(?:un)?honour(?:s|ed|ing)?\b                                   | use, read
goes-by      | \b(?:go|goes|went|gone|going) by\b                               | follows, is ordered by, is sent by, uses
goes-on      | \b(?:go|goes|went) on\b(?! (?:the|a)\b)                          | continues, resumes
whole        | \b(?:is|are|be|was|were|stays?|becomes?|left|kept|held|nothing|them|it) whole\b(?! number)|, whole\b|\bwhole (?:on|until|parameters?|tensors?|weights?|gradients?|outputs?|inputs?|sums?)\b | full, unsharded, complete
cut          | \b(?:is|are|be|was|were|been|not|that|stays?) cut\b(?! off)|\bcuts?\b (?:by|over|along|in|into|up|unevenly|evenly)\b|\bcut (?:parameters?|tensors?|layers?|weights?|matri\w+)\b|\bcuts\b|\bcutting\b(?!-edge) | shard (over ranks), split (into microbatches), truncate, crop
archaic      | \b(?:anew|likewise|for want of|in vain|in the midst of|forth and back|whence|wherein)\b|(?<!look )(?<!looks )(?<!two )\balike\b | again; the same for; during; identically
under-way    | \bunder way\b                                                    | in flight, in progress
bits         | \bto the (?:last )?bit\b|\b(?:the same|other|equal) bits\b|\bhas the bits of\b | bitwise identical (to)
ones-own     | \bone'?s own\b|\bof (?:a|the) user'?s own\b                      | your, custom, user-defined
as-of        | \bas of\b(?! (?:version|PyTorch|yet|\w+ \d{4}|v?\d|today|now|(?:that|this|the last|the) (?:step|look|time|date))) | as in, as for, see
is-there     | \b(?:is|are|was|were|be) there(?: already| yet| still| alone)?(?: ?[,.;:)]| and\b| when\b| twice\b| without\b| where\b| before\b| after\b|$) | exists, is present, is set, has arrived
is-no        | (?<!there )\b(?:is|are|was|were) no (?!longer|more|less|fewer|larger|smaller|better|worse|way|need|\w+er than)[a-z]|\bis none of\b | is not a
take-out     | \b(?:take|takes|taken|took) (?:\w+ ){1,2}out\b(?! of the)|\btaken out\b(?! of turn) | remove
but-for      | \b(?:but|save) for\b(?! now)                                     | except for
those-of     | \b(?:is|are|be|was|were) (?:that|those) of one (?:rank|device|process)\b | matches a single rank, equals
nobody       | \b(?:nobody|somebody)\b                                          | no rank, no caller, another component
by-name      | \brefuse[sd]? by name\b                                          | rejected with an error that names it
per          | \b(?:bytes|tokens|elements|rows|messages|calls|collectives|kernels|threads|numbers) an? (?:step|rank|layer|token|sample|microbatch|host|stage|group|device|directory|second|word|expert)\b | tokens per step
identifier   |                                                                  | rename: a clearer name is proposed
'''
PREP = r'\b(?:of|for|from|with|to|into|than|beside|behind|by|after|before|but|over|without|between|within|under)'
ADVICE, RULES = {}, {}
for row in TABLE.strip().split('\n'):
    rule, pattern, advice = re.fullmatch(r'(\S+)\s*\| ?(.*?) *\| ([^|]*)', row).groups()
    ADVICE[rule] = advice
    if pattern: RULES[rule] = re.compile(pattern.replace('PREP', PREP), re.I)
# Exact names; a leading dash: any name that has the word in it.
IDENTIFIERS = dict(pair.split(':') for pair in '''-anew:again -alike:same -told:notified -honour:use -honoured:used
-unhonoured:unused -honourable:required -journey:dispatch -farewell:exit_report -slips:checks -turning:rope -unheard:unreported
-beside:extra Seat:RankSlot Tails:RemainderElements Wish:StopRequest Pulse:Heartbeats Meeting:Rendezvous HostRooms:OffloadBufferPool
Room:OffloadBuffer RowsUnderWay:PendingTokens RowsTravel:TokenExchange ExpertJourney:ExpertDispatch WholeUnits:GatheredUnits
Cut:ShardSpec AppliedCut:AppliedShard SequenceCut:SequenceShard CutPieces:RowChunks CutNormImpl:ShardedNormImpl row_cut:row_shard
held_cuts:held_shards owned_cuts:owned_shards cut_parameters:shard_parameters is_whole:is_full make_whole:unshard
whole_slice:full_slice gives_whole_outputs:gathers_outputs WholeOutputs:FullOutputs norms_behind:post_norm own_norm:per_head_norm
wide_norm:qk_norm narrow_query:q_a_proj wide_query:q_b_proj narrow_key:kv_a_proj wide_key:kv_b_proj given_up:aborted
is_given_up_:is_aborted_ give_up_rows:release_shard given_away:owned_by_receiver bring_rows:materialize_shard bring_in:add_parameters
stage_module_as_is:stage_module_unmaterialized call_the_roll:barrier_with_names on_a_bare_thread:run_on_plain_thread
tell_too:set_secondary_reporter InTheWay:Obstacle kGone:kLost kHeld:kStopped kHere:kArrived kAllHere:kReleased
deciding_keys:config_fingerprint find_foreign_checkpoint:find_unrelated_checkpoint least_of_sizes:lower_bound
is_other_heads:is_ignored_tensor PictureConfig:ImageConfig'''.split())
VERB_FIRST = re.compile(  # an error text without a subject
    r"(is|are|was|were|has|have|had|does|did(?! you)|can't be|cannot be|would|must|gave|gives|got|gets|says|names|needs|reads|returned|counted"
    r"|wrote|writes|asks|leaves|goes|began|begins|ends|holds|routes|takes|comes|came|knows|belongs|contains|wants|makes|states"
    r"|draws|sent|ran|threw|lacks|stands|lies|exports|freezes|demands|overlaps)\b.* ")
CELL = re.compile(r'(?:by|as|likewise|so|between|at most)\b')
STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')


def mask(text, markup):
    """Code spans, link targets and escapes blanked; the length is kept."""
    if not markup: text = re.sub(r'\\(.)', lambda m: ' ' + (m[1] if m[1] in '"\'' else ' '), text)
    text = re.sub(r'``.+?``|`[^`]*`', lambda m: '`' + 'x' * (len(m[0]) - 2) + '`', text)
    return re.sub(r'\]\([^)]*\)|[\[*]', lambda m: ' ' * len(m[0]), text) if markup else text


class Exceptions:
    """Rows of path pattern, rule, text and reason. `*` matches any rule or text; text is a part of the excerpt."""

    def __init__(self, path):
        self.rows = []
        for n, line in enumerate(open(path, encoding='utf-8').read().split('\n') if path else [], 1):
            if not line or line.startswith('#'): continue
            row = line.split('\t')
            if len(row) != 4 or not row[3].strip(): sys.exit(f'{path}:{n}: expected path, rule, text and reason, separated by tabs')
            self.rows.append(row[:3])

    def has_file(self, path): return any(r == t == '*' and fnmatch.fnmatch(path, p) for p, r, t in self.rows)

    def has(self, path, rule, excerpt):
        return any(fnmatch.fnmatch(path, p) and r in ('*', rule) and (t == '*' or t in excerpt) for p, r, t in self.rows)


def markdown_units(path, lines, without_tables):
    out, block, fenced = [], [], False
    for n, line in enumerate(lines + [''], 1):
        fence, item = re.match(r'\s*(```|~~~)', line), re.match(r'\s*(?:[-*+]|\d+\.|#+)\s+', line)
        fenced ^= bool(fence)
        skipped = fence or fenced or not line.strip() or (line.startswith('    ') and not block and not item)
        if block and (skipped or item or line.startswith('|')): out.append(('prose', block)); block = []
        if skipped: continue
        if line.startswith('|'):
            if re.match(r'[|\s:-]+$', line) or without_tables: continue
            is_head = n < len(lines) and re.match(r'\|[|\s:-]+$', lines[n])
            for i, cell in enumerate(re.split(r'(?<!\\)\|', line.strip().strip('|'))):
                out.append(('head' if is_head else 'cell' if i else 'prose', [(n, cell.strip())]))
        elif item and '#' in item[0]: out.append(('head', [(n, line[item.end():])]))
        else: block.append((n, line[item.end():] if item else line.strip()))
    return out


def cpp_units(path, lines):
    out, block, text, code, raw = [], [], [], [], None

    def flush(kind, which):
        if which: out.append((kind, which[:]))
        which.clear()

    for n, line in enumerate(lines, 1):
        code.append('')
        if raw is not None:
            if raw in line: raw = None
            continue
        line = re.sub(r"(?<!\w)'(?:\\.|[^'\\])'", "' '", line)
        if comment := re.match(r'\s*//+(.*)$', line):
            if comment[1].strip() and not re.match(r'\s{3,}\S|\s*(namespace|clang-format|NOLINT|ranks:|-{3})', comment[1]):
                block.append((n, comment[1].strip()))
            else: flush('prose', block)
            continue
        flush('prose', block)
        if start := re.search(r'R"(\w*)\(', line):
            if ')' + start[1] + '"' not in line[start.end():]: raw = ')' + start[1] + '"'
            flush('text', text)
            continue
        at = seen = 0
        while True:
            string, tail = STRING.search(line, at), line.find('//', at)
            if not string or 0 <= tail < string.start(): break
            if line[seen:string.start()].strip(): flush('text', text)
            if not path.startswith(('tests/', 'bench/')) and not line.startswith('#'): text.append((n, string[1]))
            at = seen = string.end()
        if line[seen:tail if tail >= 0 else None].strip(): flush('text', text)
        if tail >= 0 and not re.match(r'\s*(namespace|NOLINT)', line[tail + 2:]): out.append(('prose', [(n, line[tail + 2:].strip())]))
        code[-1] = STRING.sub('""', line if tail < 0 else line[:tail])
    flush('prose', block), flush('text', text)
    return [u for u in out if u[0] != 'text' or len(re.findall(r'[a-z]{2,}', ' '.join(t for _, t in u[1]))) > 1], code


def check(path, content, exceptions):
    """Yields (line, last line of the sentence, rule, excerpt)."""
    lines, seen = content.split('\n'), set()
    units, code = (markdown_units(path, lines, exceptions.has(path, 'table', '')), []) if path.endswith('.md') else cpp_units(path, lines)
    for kind, parts in units:
        text, marks = '', []
        for n, part in parts:
            marks.append((len(text), n))
            text += part + ('' if kind == 'text' else ' ')
        raw, text = text, mask(text, kind != 'text')  # of one length
        line_of = lambda at: [n for p, n in marks if p <= at][-1]
        if kind == 'text' and VERB_FIRST.match(text): yield marks[0][1], marks[0][1], 'verb-first', raw[:90]
        if kind == 'cell' and CELL.match(text): yield marks[0][1], marks[0][1], 'cell', raw[:90]
        continued = kind == 'text' and text[:1] in ' ;,:'  # a literal that is appended to another
        ends = [m.end() for m in re.finditer(r'(?<!e\.g)(?<!i\.e)(?<!\bal)(?<!\bcf)[.!?][)"\']*\s+(?=[`"\'(]*[A-Z`0-9])', text)]
        for begin, end in zip([0] + ends, ends + [len(text)]):
            begin += len(text[begin:end]) - len(text[begin:end].lstrip(' _"\'('))
            sentence = text[begin:end].rstrip()
            for rule, pattern in RULES.items():
                if pattern.pattern[0] == '^' and (kind == 'head' or (continued and not begin)): continue
                for m in pattern.finditer(sentence):
                    n = line_of(begin + m.start())
                    if (n, rule) not in seen: yield n, n, rule, raw[begin + max(0, m.start() - 50):begin + min(m.end() + 60, len(sentence))]
                    seen.add((n, rule))
            words = len(re.findall(r"[A-Za-z][\w'-]*", re.sub(r'`x*`', '', sentence)))
            extent = line_of(begin), line_of(max(begin, end - 2))
            if kind != 'head' and words > 35: yield *extent, 'long', f'({words} words) {raw[begin:begin + 90]}'
            if sentence.count(';') > 2: yield *extent, 'semicolons', raw[begin:begin + 110]
    for n, line in enumerate(code, 1):
        for name in dict.fromkeys(re.findall(r'[A-Za-z_]\w+', line)):
            words = ['-' + word.lower() for word in re.findall(r'[A-Z]?[a-z]+', name)]
            better = IDENTIFIERS.get(name) or next((f'{w[1:]} -> {IDENTIFIERS[w]}' for w in words if w in IDENTIFIERS), None)
            if better and name not in seen: yield n, n, 'identifier', f'{name}: {better}'
            seen.add(name)


def folder_of(path): return path.split('/')[0] if '/' in path else '.'


def print_hits(hits):
    for path, line, _, rule, excerpt in hits: print(f'{path}:{line}: {rule}: {" ".join(excerpt.split())}')


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = os.path.dirname(os.path.abspath(__file__))
    options.add_argument('--root', default=os.path.dirname(os.path.dirname(here)), help='default: the repository of this script')
    options.add_argument('--exceptions', metavar='FILE', default=os.path.join(here, 'prose_exceptions.tsv'))
    options.add_argument('--changed', metavar='BASE')
    options.add_argument('--rules', help='only these, with commas between; a leading ! takes all others')
    options.add_argument('--counts', action='store_true', help='hits by rule and by folder, no lines')
    options.add_argument('--sample', type=int)
    options.add_argument('--seed', type=int, default=1)
    options.add_argument('paths', nargs='*', default=['*.md', '*.h', '*.cpp', '*.cu'])
    o = options.parse_args()
    exceptions = Exceptions(o.exceptions)
    git = lambda *a: subprocess.run(['git', '-C', o.root, *a], capture_output=True, text=True, errors='replace', check=True).stdout
    tip, added = (o.changed.split('..')[-1] if o.changed and '..' in o.changed else None), collections.defaultdict(set)
    for line in git('diff', '--unified=0', '--no-color', '--relative', o.changed, '--', *o.paths).split('\n') if o.changed else []:
        if line.startswith('+++ '): name = line[6:]
        elif m := re.match(r'@@ -\S+ \+(\d+)(?:,(\d+))? @@', line): added[name] |= set(range(int(m[1]), int(m[1]) + int(m[2] or 1)))
    if o.changed: files = sorted(added)
    elif all(os.path.isfile(os.path.join(o.root, p)) for p in o.paths): files = o.paths  # also outside of a git repository
    else: files = git('ls-files', '-co', '--exclude-standard', '--', *o.paths).split('\n')
    files = [f for f in files if f.endswith(('.md', '.h', '.cpp', '.cu')) and not exceptions.has_file(f)]
    hits, rules = [], set((o.rules or '').lstrip('!').split(','))
    for path in files:
        try: content = git('show', f'{tip}:{path}') if tip else open(f'{o.root}/{path}', encoding='utf-8', errors='replace').read()
        except (OSError, subprocess.CalledProcessError): continue
        hits += [(path, *h) for h in check(path, content, exceptions) if (not o.rules or (h[2] in rules) != o.rules.startswith('!'))
                 and not exceptions.has(path, h[2], h[3])
                 and (not o.changed or added[path] & set(range(h[0], h[1] + 1)))]
    if not o.counts: print_hits(sorted(random.Random(o.seed).sample(hits, min(o.sample, len(hits)))) if o.sample else hits)
    out = sys.stdout if o.counts else sys.stderr
    for rule, n in collections.Counter(h[3] for h in hits).most_common(): print(f'{n:6} {rule:12} {ADVICE[rule]}', file=out)
    for folder, n in collections.Counter(folder_of(h[0]) for h in hits).most_common() if o.counts else []:
        print(f'{n:6} {folder}')
    print(f'{len(hits)} hits in {len({h[0] for h in hits})} of {len(files)} files', file=sys.stderr)
    return 1 if hits else 0


if __name__ == '__main__':
    try: sys.exit(main())
    except subprocess.CalledProcessError as error: print(error.stderr.strip(), file=sys.stderr), sys.exit(2)
