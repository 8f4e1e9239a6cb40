"""What makes a shell complete kfm's commands, flags and dataset ids."""

from kfm.cli.answer import Answer, Call
from kfm.cli.spec import COMMANDS, EVERYWHERE, HEADS, NOUNS, Command, verbs

__all__ = ["Script", "script"]

_IDS = ("DATASET", "ID", "REF", "A", "N|DATASET", "REF|DIR|FILE", "NAME|FILE|DATASET")
_FOLDER = '"${1:-${KFM_WORKSPACE:-.}}"/data/registry'


class Script(Answer, frozen=True, kw_only=True):
    """What makes a shell complete kfm's commands."""

    shell: str
    script: str

    def tell(self, call: Call) -> None:
        print(self.script, end="")


def script(call: Call, shell: str) -> Script:
    return Script(shell=shell, script={"bash": _bash, "zsh": _zsh, "fish": _fish}[shell]())


def _flags(command: Command) -> list[str]:
    return [n for a in (*command.arguments, *EVERYWHERE) for n in a.names] + ["--help"]


def _takes_ids(command: Command) -> bool:
    return any(not a.names and a.metavar in _IDS for a in command.arguments)


def _values() -> list[tuple[list[str], str, tuple[str, ...]]]:
    """The choices of every flag that has some: what was said before it, the flag, and these."""
    found = []
    for command in COMMANDS.values():
        said = [f'"{command.name}|{{}}"']
        if not command.verb:
            said.append(f'"{command.name} "*"|{{}}"')
        elif NOUNS[command.noun].usual == command.verb:
            said.append(f'"{command.noun}|{{}}"')
        found += [
            (said, name, a.choices) for a in command.arguments if a.choices for name in a.names
        ]
    return found


def _cases() -> list[tuple[str, str, bool]]:
    """What may follow each command: `noun verb` as the shells look it up, words, dataset ids."""
    found = []
    for noun in HEADS:
        known = verbs(noun)
        usual = known.get("") or known.get(NOUNS[noun].usual if noun in NOUNS else "")
        words = [v for v in known if v] + (_flags(usual) if usual else ["--help"])
        found.append((noun, " ".join(words), bool(usual) and _takes_ids(usual)))  # type: ignore[arg-type]
        found += [(c.name, " ".join(_flags(c)), _takes_ids(c)) for v, c in known.items() if v]
    return found


def _case_lines(names: str) -> str:
    """A case statement over `noun verb`, which bash and zsh read alike."""
    lines = []
    for name, words, ids in sorted(_cases(), key=lambda c: -len(c[0])):
        pattern = f'"{name}"' if " " in name else f'"{name}"*'
        more = f" $({names})" if ids else ""
        lines.append(f'    {pattern}) words="{words}{more}" ;;')
    return "\n".join(lines)


def _value_lines() -> str:
    return "\n".join(
        f"    {'|'.join(each.format(name) for each in said)})"
        f' values="{" ".join(v.replace(" ", "_") for v in choices)}" ;;'
        for said, name, choices in _values()
    )


_BODY = """\
_kfm_datasets() {{  # of the workspace that is named, if one is
  local file
  for file in {folder}/*.yml; do
    [ -e "$file" ] && basename "$file" .yml
  done
}}

_kfm_words() {{  # what may follow: the words so far, the word before, the workspace that was named
  local words="" values=""
  case "$1|$2" in
{values}
  esac
  if [ -n "$values" ]; then echo "$values"; return; fi
  case "$1" in
    "") words="{nouns} --help --version" ;;
{cases}
  esac
  echo "$words"
}}
"""


def _body() -> str:
    return _BODY.format(
        folder=_FOLDER,
        nouns=" ".join(HEADS),
        cases=_case_lines('_kfm_datasets "$3"'),
        values=_value_lines(),
    )


def _bash() -> str:
    return (
        "# kfm: completion for bash\n"
        + _body()
        + """
_kfm() {
  local word where="" said="" at=1
  while [ "$at" -lt "$COMP_CWORD" ]; do
    word="${COMP_WORDS[$at]}"
    case "$word" in
      -w|--workspace) at=$((at + 1)); where="${COMP_WORDS[$at]}" ;;
      -*) ;;
      *) case "$said" in "") said="$word" ;; *" "*) ;; *) said="$said $word" ;; esac ;;
    esac
    at=$((at + 1))
  done
  local words
  words="$(_kfm_words "$said" "${COMP_WORDS[COMP_CWORD-1]}" "$where")"
  COMPREPLY=( $(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}") )
}
complete -o default -F _kfm kfm
"""
    )


def _zsh() -> str:
    return (
        "#compdef kfm\n# kfm: completion for zsh\n"
        + _body()
        + """
_kfm() {
  local word where="" said="" at=2
  while [ "$at" -lt "$CURRENT" ]; do
    word="${words[$at]}"
    case "$word" in
      -w|--workspace) at=$((at + 1)); where="${words[$at]}" ;;
      -*) ;;
      *) case "$said" in "") said="$word" ;; *" "*) ;; *) said="$said $word" ;; esac ;;
    esac
    at=$((at + 1))
  done
  local found
  found="$(_kfm_words "$said" "${words[CURRENT-1]}" "$where")"
  compadd -- ${=found} || _files
}
compdef _kfm kfm
"""
    )


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _fish() -> str:
    lines = [
        "# kfm: completion for fish",
        "function __kfm_said",
        "    set -l said",
        "    set -l passed no",
        "    for word in (commandline -opc)[2..-1]",
        "        if test $passed = yes",
        "            set passed no",
        "        else if contains -- $word -w --workspace",
        "            set passed yes",
        "        else if not string match -q -- '-*' $word",
        "            set -a said $word",
        "        end",
        "    end",
        "    string join ' ' -- $said[1..2]",
        "end",
        "function __kfm_datasets",
        "    set -l folder .",
        '    test -n "$KFM_WORKSPACE"; and set folder $KFM_WORKSPACE',
        "    set -l words (commandline -opc)",
        "    for at in (seq (count $words))",
        "        contains -- $words[$at] -w --workspace; and set folder $words[(math $at + 1)]",
        "    end",
        "    for file in $folder/data/registry/*.yml",
        "        basename $file .yml",
        "    end",
        "end",
        "complete -c kfm -f",
    ]
    begun = "not string length -q -- (__kfm_said)"
    for noun in HEADS:
        told = NOUNS[noun].what if noun in NOUNS else verbs(noun)[""].what
        lines.append(f"complete -c kfm -n {_quoted(begun)} -a {noun} -d {_quoted(told)}")
    for command in COMMANDS.values():
        if command.verb:
            at = f'string match -q -- "{command.noun}" (__kfm_said)'
            lines.append(
                f"complete -c kfm -n {_quoted(at)} -a {command.verb} -d {_quoted(command.what)}"
            )
        here = _quoted(f'string match -qr -- "^{command.name}( |\\$)" (__kfm_said)')
        for a in (*command.arguments, *EVERYWHERE):
            spelt = " ".join(
                f"-l {n[2:]}" if n.startswith("--") else f"-s {n[1:]}" for n in a.names
            )
            if not spelt:
                continue
            needs = "" if a.kind == "switch" else " -r" + (" -F" if a.kind == "path" else "")
            some = f" -a {_quoted(' '.join(a.choices))}" if a.choices else ""
            lines.append(f"complete -c kfm -n {here} {spelt}{needs}{some} -d {_quoted(a.help)}")
        if _takes_ids(command):
            lines.append(f"complete -c kfm -n {here} -a '(__kfm_datasets)'")
    return "\n".join(lines) + "\n"
