"""The commands, words and signs that answers are written with, and what each stands for."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _table(text: str) -> dict[str, str]:
    """Return what words stand for: the last word of their group, which a semicolon ends."""
    groups = [group.split() for group in text.split(";")]
    return {word: meaning for *words, meaning in groups for word in words}


# ---- Mathematics

FUNCTIONS = _words(
    "sin cos tan cot sec csc sinh cosh tanh arcsin arccos arctan ln log lg exp max min gcd lcm "
    "sqrt frac binom"
)
GREEK = _table(
    "α alpha; β beta; γ gamma; δ delta; ε epsilon; ζ zeta; η eta; θ theta; ι iota; κ kappa; "
    "λ lambda; µ μ mu; ν nu; ξ xi; π pi; ρ rho; σ sigma; τ tau; υ upsilon; φ phi; χ chi; ψ psi; "
    "ω omega; Γ Gamma; Δ Delta; Θ Theta; Λ Lambda; Ξ Xi; Π Pi; Σ Sigma; Φ Phi; Ψ Psi; Ω Omega"
)
MATHEMATICS = _words("int sum prod lim det cap partial iint oint mod bmod substack")
"""Commands of mathematics that only Math-Verify reads."""
UNCLEAR = MATHEMATICS | _words("neg overset underset sout cancel stackrel pmod Re Im")
"""Commands that are no names of variables, and that expressions here do not have."""
ACCENTS = _words(r"\vec \hat \bar \overline \tilde \dot \ddot")
UNINTERPRETED = frozenset("fghFGPQT") | _words("phi sigma tau psi Phi")
"""Names that are functions before a bracket: f(x)."""

# ---- LaTeX

SIGNS = _table(
    r"\le \leq \leqslant \leqq <= ≤; \ge \geq \geqslant \geqq >= ≥; \lt <; \gt >; \ne \neq != ≠; "
    r"\approx \simeq \sim \doteq \thickapprox ≈; \times \cdot \ast \bullet *; \div /; \infty ∞; "
    r"\ldots \dots \cdots \dotsc \dotsb ... …; \mid \vert \lvert \rvert |; "
    r"\to \rightarrow \longrightarrow -> →; \implies \Rightarrow \therefore \iff => ⇒; \in ∈; "
    r"\checkmark \blacksquare \square \qed \Box ✓; \pm ±; \mp ∓; \colon :; \cup \bigcup ∪; "
    r"\emptyset \varnothing ∅; ** ^; "
    r"\setminus \backslash ∖; \degree °; \equiv ≡; \prime '; \% %; \_ _"
)
OPENING = _table(r"( (; [ [; { {; ⟦ ⟦; ⟪ ⟪; \{ \lbrace ⦃; \langle ⟨ ⟨; \lfloor ⌊ ⌊; \lceil ⌈ ⌈")
ENDING = _table(r") ); ] ]; } }; ⟧ ⟧; ⟫ ⟫; \} \rbrace ⦄; \rangle ⟩ ⟩; \rfloor ⌋ ⌋; \rceil ⌉ ⌉")
CLOSING = dict(zip("([{⦃⟨⌊⌈⟦⟪", ")]}⦄⟩⌋⌉⟧⟫", strict=True))
"""The bracket that closes each; matrices are in ⟦⟧, determinants in ⟪⟫, sets in ⦃⦄."""
SPACES = frozenset(",;: \n>") | _words("quad qquad enspace thinspace")
DROPPED_WITH_ARGUMENT = "color|textcolor|tag|label|[hv]space|[hv]?phantom"
TEXTS = "text|textbf|textit|textrm|textsf|texttt|textnormal|emph|mbox|hbox|mathrm|operatorname"
DROPPED = frozenset(TEXTS.split("|")) | _words(
    "left right middle limits nolimits displaystyle textstyle scriptstyle rm it bf bfseries small "
    "normalsize large Large LARGE huge Huge mathbf boldsymbol bm mathit mathsf mathtt boxed fbox "
    "underline mathcal mathscr mathop ! ( ) [ ] big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr"
)
"""Layout, which says nothing about an answer."""
ALIASES = _table(
    "dfrac tfrac cfrac sfrac nicefrac frac; dbinom tbinom binom; land wedge and; lor vee or; "
    "varphi phi; varepsilon epsilon; vartheta theta; lnot neg; asin arcsin; acos arccos; "
    "atan arctan; ohm Omega"
)
CURRENCY_SIGNS = _table(r"\$ dollar; € euro; £ pound_sterling; ¥ yen; ¢ cent")
_CHARACTERS = _table(
    "− -; ⋅ · × ∗ *; ÷ /; √ \\sqrt; ∘ º °; 、 ,; “ ” \"; ‘ ’ ′ '; ∶ :; ∣ |; ∨ \\lor; ∧ \\land; "
    "∩ \\cap; ¬ \\neg; ⩽ ≤; ⩾ ≥; — –; \u2126 \\Omega"
)
CHARACTERS = str.maketrans(
    {char: f"{new} " if len(new) > 1 else new for char, new in _CHARACTERS.items()}
    | {char: f"\\{letter} " for char, letter in GREEK.items()}
)
# ---- Words

CONNECTIVES = frozenset({"and", "or"})
LEADING = _words(
    "about approximately approx roughly around exactly only just therefore so thus hence is are "
    "equals answer solution result"
)
"""Words before an answer that say nothing about it."""
NEGATIONS = _words("not never no isn aren cannot nor neither anything or either")
REMARKS = _words("for where when with as since because using by")
"""Words that begin a remark after an answer."""
MULTIPLES = {
    **{"dozen": 12, "hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9},
    **{"trillion": 10**12, "quadrillion": 10**15, "lakh": 10**5, "crore": 10**7},
}
BASES = _table("two 2; three 3; four 4; five 5; six 6; seven 7; eight 8; nine 9")

# ---- Units

UNIT_SYMBOLS = _table(r"\mu µ; \Omega Ω; \min min")
CURRENCIES = _words("USD EUR GBP")
UNIT_LETTERS = CURRENCIES | _words(
    "kg mg cm mm km nm dm ft yd mi lb lbs oz kHz Hz MHz GHz eV keV MeV GeV Pa kPa MPa mL ml kW MW "
    "mW kWh Wh kJ MJ kN mol rad deg min sec hr hrs mph kph kmh rpm GB MB kB TB cal kcal kV mV mA"
)
"""Abbreviations that are units after a number in plain letters, too: 5 kg."""
UNIT_LETTER_PLAIN = frozenset("mgsh")
UNIT_LETTER_IN_TEXT = frozenset("mgshNJWVAKLlTCFΩÅ")
NO_UNITS = _words(
    "not or and if mod base more less most least than below above under "
    "over minus plus times factorial remainder half halves third thirds quarter quarters fourth "
    "fourths fifth fifths tenth tenths hundredth hundredths thousandth thousandths millionth "
    "millionths except maybe perhaps to through negative positive squared cubed rejected r x am "
    "pm is are modulo but no none"
)
"""Words after a number that are no unit, but change what is said."""
