"""`kgroup completion` and `kbroker completion`: the script that a shell has to run once.

The scripts are ours, because click's take no name that is a part of a word of the shell: behind
`--topic=`, or on a bash line with `host:port` on it.
"""

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete


class _Bash(BashComplete):
    source_template = """\
%(complete_func)s() {
    # Bash breaks words at colons and equal signs too, so the program gets the line as it is.
    local line="${COMP_LINE:0:COMP_POINT}" last=-1 type value
    [[ $line == *[[:space:]] ]] && last=1000000
    local response
    response=$(env COMP_WORDS="$line" COMP_CWORD=$last %(complete_var)s=bash_complete "$1")

    # What stands before such a character stays, and is no part of the reply.
    local word="${line##*[[:space:]]}"
    local kept="${word%%"${word##*[$COMP_WORDBREAKS]}"}"
    while IFS=, read -r type value; do
        case $type in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain)
                value="${value#"$kept"}"
                [[ $value == *[[:space:]]* ]] && printf -v value %%q "$value"
                COMPREPLY+=("$value")
                ;;
        esac
    done <<< "$response"
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class _Zsh(ZshComplete):
    source_template = """\
#compdef %(prog_name)s

%(complete_func)s() {
    (( $+commands[%(prog_name)s] )) || return 1
    local -a response plain described
    local type value help
    response=("${(@f)$(env COMP_WORDS="${words[*]}" COMP_CWORD=$((CURRENT-1)) \
%(complete_var)s=zsh_complete %(prog_name)s)}")

    # What stands before the equal sign stays.
    [[ $words[CURRENT] == --*=* ]] && compset -P '*='
    for type value help in $response; do
        case $type in
            dir) _path_files -/ ;;
            file) _path_files -f ;;
            plain) [[ $help == _ ]] && plain+=("$value") || described+=("$value:$help") ;;
        esac
    done
    (( $#described )) && _describe -V unsorted described
    (( $#plain )) && compadd -V unsorted -a plain
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    %(complete_func)s "$@"
else
    compdef %(complete_func)s %(prog_name)s
fi
"""


class _Fish(FishComplete):
    source_template = """\
function %(complete_func)s
    set -l word (commandline -t)
    set -l response (env %(complete_var)s=fish_complete COMP_WORDS=(commandline -cp) \
COMP_CWORD="$word" %(prog_name)s)

    # What stands before the equal sign is a part of the reply.
    set -l kept (string match -r -- '^--[^=]*=' $word)
    for completion in $response
        set -l parts (string split -m 1 , -- $completion)
        switch $parts[1]
            case dir
                __fish_complete_directories $parts[2]
            case file
                __fish_complete_path $parts[2]
            case plain
                echo "$kept$parts[2]"
        end
    end
end

complete --no-files --command %(prog_name)s --arguments "(%(complete_func)s)"
"""


SHELLS: dict[str, type[ShellComplete]] = {"bash": _Bash, "zsh": _Zsh, "fish": _Fish}


@click.command(
    "completion",
    epilog="""\b
Examples:
  kgroup completion bash > ~/.local/share/bash-completion/completions/kgroup
  kbroker completion bash > ~/.local/share/bash-completion/completions/kbroker
  kgroup completion zsh > ~/.zfunc/_kgroup
  kgroup completion fish > ~/.config/fish/completions/kgroup.fish""",
)
@click.argument("shell", type=click.Choice(list(SHELLS)))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print the script by which a shell completes commands, options, groups and topics.

    Names of groups and topics are asked of the cluster, for at most a second.
    """
    root = context.find_root()
    program = root.info_name or "kgroup"
    variable = f"_{program.upper().replace('-', '_')}_COMPLETE"
    click.echo(SHELLS[shell](root.command, {}, program, variable).source(), nl=False)
