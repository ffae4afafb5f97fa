"""The settings of logins: which mechanisms each SASL listener has, and what they need.

`sasl.jaas.config` counts with its whole prefix alone,
`listener.name.<listener>.<mechanism>.sasl.jaas.config`, as in Kafka. The entry has the users of
PLAIN (`user_<name>`), and the name and password by which this broker logs in at others. SCRAM has
its users in ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from broker.settings.listener_settings import find_listener_setting, name_of_mechanism_setting
from protocol.frozen import frozen
from protocol.sasl.exchange import OAUTHBEARER, PLAIN, refuse_mechanism
from protocol.sasl.jaas import JaasEntry, JaasError, parse_jaas_for
from protocol.sasl.oauthbearer import TokenRules
from protocol.settings import SettingError, convert, declared_settings, load
from zk.znodes import Endpoint

if TYPE_CHECKING:
    from broker.settings.config import BrokerConfig

SASL_PROTOCOLS: Final = ("SASL_PLAINTEXT", "SASL_SSL")

JAAS_CONFIG: Final = "sasl.jaas.config"
ENABLED: Final = "sasl.enabled.mechanisms"
INTER_BROKER_MECHANISM: Final = "sasl.mechanism.inter.broker.protocol"
CALLBACK_HANDLER: Final = "sasl.server.callback.handler.class"
JWKS_URL: Final = "sasl.oauthbearer.jwks.endpoint.url"
PUBLIC_KEY: Final = "kgroup.sasl.oauthbearer.public.key.location"

SASL_SETTINGS: Final = (
    JAAS_CONFIG,
    ENABLED,
    CALLBACK_HANDLER,
    JWKS_URL,
    PUBLIC_KEY,
    "connections.max.reauth.ms",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    "sasl.oauthbearer.clock.skew.seconds",
    "sasl.oauthbearer.expected.audience",
    "sasl.oauthbearer.expected.issuer",
    "sasl.oauthbearer.scope.claim.name",
    "sasl.oauthbearer.sub.claim.name",
)
"""The settings of logins that a listener may have for itself."""

_HANDLERS: Final = "org.apache.kafka.common.security.oauthbearer."
UNSECURED_HANDLER: Final = (
    _HANDLERS + "internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
)
SECURED_HANDLERS: Final = (
    _HANDLERS + "OAuthBearerValidatorCallbackHandler",
    _HANDLERS + "secured.OAuthBearerValidatorCallbackHandler",
)

_USER: Final = "user_"
_UNSECURED: Final = "unsecuredValidator"
_FILE: Final = "file:"
_HTTPS: Final = "https:"
_MOST_DOUBLINGS: Final = 30


@frozen
class TokenConfig:
    """The checks of OAUTHBEARER tokens: by the keys at `keys_location`, or by nobody if None.

    The location is a path, or a URL of https. What cannot be read is read again after
    `retry_backoff_ms`, which doubles up to `retry_backoff_max_ms`.
    """

    rules: TokenRules
    keys_location: str | None
    keys_refresh_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int

    def retry_pause_ms(self, failures: int) -> int:
        """Return the pause after a reading that failed, when so many have failed before it."""
        doublings = min(failures, _MOST_DOUBLINGS)
        return min(self.retry_backoff_ms << doublings, self.retry_backoff_max_ms)


@frozen
class MechanismConfig:
    """A mechanism that a listener has. `tokens` is there for OAUTHBEARER alone."""

    name: str
    entry: JaasEntry | None
    max_reauth_ms: int
    tokens: TokenConfig | None = None

    @property
    def passwords(self) -> Mapping[str, str]:
        """The users of PLAIN, with their passwords."""
        if self.name != PLAIN or self.entry is None:
            return {}
        return {
            key.removeprefix(_USER): value
            for key, value in self.entry.options.items()
            if key.startswith(_USER)
        }


def is_sasl(endpoint: Endpoint) -> bool:
    """Return whether clients of a listener log in by SASL."""
    return endpoint.security_protocol in SASL_PROTOCOLS


def read_sasl_listeners(config: BrokerConfig) -> Mapping[str, Mapping[str, MechanismConfig]]:
    """Return the mechanisms of each SASL listener, by its name. Raises SettingError."""
    return {
        endpoint.listener: {
            mechanism: _read_mechanism(config, endpoint.listener, mechanism)
            for mechanism in _enabled(config, endpoint.listener)
        }
        for endpoint in config.endpoints
        if is_sasl(endpoint)
    }


def own_mechanism(config: BrokerConfig, listener: str) -> MechanismConfig | None:
    """Return the mechanism by which this broker logs in at a listener of others.

    None if it need not. Raises SettingError.
    """
    mechanisms = read_sasl_listeners(config).get(listener)
    if mechanisms is None:
        return None

    name = config.sasl_mechanism_inter_broker_protocol
    if reason := refuse_mechanism(name):
        raise SettingError(INTER_BROKER_MECHANISM, reason)
    if name not in mechanisms:
        raise SettingError(
            INTER_BROKER_MECHANISM,
            f"{name} is not among {ENABLED} of {listener}, by which brokers reach each other: "
            f"{', '.join(mechanisms)}",
        )

    mechanism = mechanisms[name]
    _require_own_login(listener, mechanism)
    return mechanism


def _enabled(config: BrokerConfig, listener: str) -> tuple[str, ...]:
    names: tuple[str, ...] = _value(config, listener, "", "sasl_enabled_mechanisms")
    found = find_listener_setting(config.given, listener, ENABLED)
    setting_name = ENABLED if found is None else found[0]
    if not names:
        raise SettingError(setting_name, f"names no mechanism, and listener {listener} needs one")
    for name in names:
        if reason := refuse_mechanism(name):
            raise SettingError(setting_name, f"{reason} (listener {listener})")
    return tuple(dict.fromkeys(names))


def _read_mechanism(config: BrokerConfig, listener: str, mechanism: str) -> MechanismConfig:
    entry = _read_entry(config, listener, mechanism)
    if mechanism == PLAIN and entry is None:
        raise SettingError(
            name_of_mechanism_setting(listener, mechanism, JAAS_CONFIG),
            "is needed: it has the users of PLAIN",
        )
    max_reauth_ms = _value(config, listener, mechanism, "connections_max_reauth_ms")
    tokens = _read_tokens(config, listener, entry) if mechanism == OAUTHBEARER else None
    return MechanismConfig(mechanism, entry, max_reauth_ms, tokens)


def _read_entry(config: BrokerConfig, listener: str, mechanism: str) -> JaasEntry | None:
    name = name_of_mechanism_setting(listener, mechanism, JAAS_CONFIG)
    text = config.given.get(name)
    if text is None:
        return None
    try:
        return parse_jaas_for(mechanism, text)
    except JaasError as error:
        raise SettingError(name, str(error)) from None


def _value(config: BrokerConfig, listener: str, mechanism: str, field: str) -> Any:
    """Return the value of a field of BrokerConfig that counts at a listener for a mechanism.

    Raises SettingError.
    """
    setting_name = declared_settings(type(config))[field].name
    found = find_listener_setting(config.given, listener, setting_name, mechanism)
    if found is None:
        return getattr(config, field)

    # zookeeper.connect is here because a config cannot be loaded without it.
    name, text = found
    given = {"zookeeper.connect": config.zookeeper_connect, setting_name: text}
    try:
        return getattr(load(type(config), given)[0], field)
    except SettingError as error:
        raise error.with_name(name) from None


# ---- tokens of OAUTHBEARER


def _read_tokens(config: BrokerConfig, listener: str, entry: JaasEntry | None) -> TokenConfig:
    """Say how tokens are checked. Unsecured ones are accepted only where the file says so."""

    def value(field: str) -> Any:
        return _value(config, listener, OAUTHBEARER, f"sasl_{field}")

    handler = value("server_callback_handler_class")
    if handler not in (None, UNSECURED_HANDLER, *SECURED_HANDLERS):
        raise SettingError(CALLBACK_HANDLER, f"{handler} is not served: no class is loaded by name")

    times_ms = (
        value("oauthbearer_jwks_endpoint_refresh_ms"),
        value("oauthbearer_jwks_endpoint_retry_backoff_ms"),
        value("oauthbearer_jwks_endpoint_retry_backoff_max_ms"),
    )
    location = _keys_location(
        value("oauthbearer_jwks_endpoint_url"), value("oauthbearer_public_key_location")
    )
    if location is not None and handler != UNSECURED_HANDLER:
        rules = TokenRules(
            user_claim=value("oauthbearer_sub_claim_name"),
            scope_claim=value("oauthbearer_scope_claim_name"),
            issuer=value("oauthbearer_expected_issuer"),
            audiences=value("oauthbearer_expected_audience"),
            clock_skew_ms=1000 * value("oauthbearer_clock_skew_seconds"),
        )
        return TokenConfig(rules, location, *times_ms)

    # Without keys anybody can make a token, so somebody has to have asked for that.
    options = {} if entry is None else entry.options
    if handler in SECURED_HANDLERS:
        raise SettingError(CALLBACK_HANDLER, f"needs {JWKS_URL} or {PUBLIC_KEY}")
    if handler is None and not any(key.startswith(_UNSECURED) for key in options):
        raise SettingError(
            ENABLED,
            f"OAUTHBEARER at listener {listener} needs keys: {JWKS_URL} or {PUBLIC_KEY}. Only for "
            f"development are tokens accepted that nobody has signed: with {CALLBACK_HANDLER}="
            f"{UNSECURED_HANDLER}, or an option {_UNSECURED}… in its {JAAS_CONFIG}",
        )
    return TokenConfig(_unsecured_rules(options), None, *times_ms)


def _keys_location(url: str | None, path: str | None) -> str | None:
    if url is not None and path is not None:
        raise SettingError(PUBLIC_KEY, f"cannot stand beside {JWKS_URL}")
    if url is None:
        return path
    if url.startswith(_HTTPS):
        return url
    if not url.startswith(_FILE):
        raise SettingError(
            JWKS_URL, "has to begin with https:// or file:///: others could change keys on the way"
        )
    return "/" + url.removeprefix(_FILE).lstrip("/")


def _unsecured_rules(options: Mapping[str, str]) -> TokenRules:
    def option(name: str, default: str) -> str:
        return options.get(f"{_UNSECURED}{name}", default)

    skew_ms = option("AllowableClockSkewMs", "0")
    return TokenRules(
        user_claim=option("PrincipalClaimName", "sub"),
        scope_claim=option("ScopeClaimName", "scope"),
        scopes=tuple(option("RequiredScope", "").split()),
        clock_skew_ms=convert(f"{_UNSECURED}AllowableClockSkewMs", skew_ms, int),
    )


# ---- the broker's own login


def _require_own_login(listener: str, mechanism: MechanismConfig) -> None:
    """Raise SettingError unless the entry of a mechanism has what this broker logs in with."""
    name = name_of_mechanism_setting(listener, mechanism.name, JAAS_CONFIG)
    options = {} if mechanism.entry is None else mechanism.entry.options
    if mechanism.name == OAUTHBEARER:
        if not any(key.startswith("unsecuredLogin") for key in options):
            raise SettingError(
                name,
                "has no unsecuredLoginStringClaim_sub, by which brokers log in at each other; "
                f"another {INTER_BROKER_MECHANISM} may serve as well",
            )
        return

    if not options.get("username") or not options.get("password"):
        raise SettingError(
            name, "needs username and password, by which this broker logs in at others"
        )
    user = options["username"]
    if mechanism.name == PLAIN and mechanism.passwords.get(user) != options["password"]:
        raise SettingError(
            name, f"has no {_USER}{user} with the password by which this broker logs in at others"
        )
