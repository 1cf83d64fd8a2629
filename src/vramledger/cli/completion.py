"""Completion in a shell, through click's own protocol; imported only where a shell asks."""

from __future__ import annotations

import os
from typing import ClassVar

from click.shell_completion import BashComplete, add_completion_class, split_arg_string

VARIABLE = "_VRAMLEDGER_COMPLETE"
SHELLS = ("bash", "zsh", "fish")

# click's own script takes the words that readline makes, and readline ends a word at every colon of `builtin:NAME` and
# `custom:SIZE`. Here the line is cut at blanks, and what readline has already taken for a word is left out of the replies.
_BASH = """\
%(complete_func)s() {
    local IFS=$'\\n'
    local line="${COMP_LINE:0:COMP_POINT}"
    local word="${line##*[[:space:]]}"
    local taken="${word%%"${word##*:}"}"
    taken="${taken#--*=}"
    [[ $COMP_WORDBREAKS == *:* ]] || taken=""
    local response completion type value

    response=$(env COMP_WORDS="$line" COMP_CWORD=$COMP_CWORD %(complete_var)s=bash_complete "$1" 2>/dev/null)

    for completion in $response; do
        IFS=',' read -r type value <<< "$completion"

        if [[ $type == 'dir' ]]; then
            COMPREPLY=()
            compopt -o dirnames
        elif [[ $type == 'file' ]]; then
            COMPREPLY=()
            compopt -o default
        elif [[ $type == 'plain' ]]; then
            COMPREPLY+=("${value#"$taken"}")
        fi
    done

    return 0
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class LineBashComplete(BashComplete):
    """bash, by the line that was typed."""

    name: ClassVar[str] = "bash"
    source_template: ClassVar[str] = _BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words after the program's name, and the one that is not finished."""
        line = os.environ.get("COMP_WORDS", "")
        words = split_arg_string(line)[1:]
        if not words or line[-1:].isspace():
            return words, ""
        return words[:-1], words[-1]


add_completion_class(LineBashComplete)
